#!/bin/sh
# The steps of the image, which the Dockerfile runs. Each needs Python with venv, and no compiler.
#
#   build.sh environment  install this checkout into /opt/revstream, with the versions and hashes of
#                         requirements.lock
#   build.sh user         add the user that revstream runs as
set -eu

case ${1:-} in
  environment)
    source=$(cd "$(dirname "$0")/../.." && pwd)
    tools=$(mktemp -d)
    trap 'rm -rf "$tools"' EXIT
    # The environment has no pip: a running gateway installs nothing.
    python3 -m venv "$tools"
    python3 -m venv --without-pip /opt/revstream
    pip_install() {
      "$tools/bin/pip" --python /opt/revstream/bin/python install \
        --disable-pip-version-check --no-cache-dir "$@"
    }
    pip_install --only-binary :all: --require-hashes --requirement "$source/requirements.lock"
    pip_install --no-deps "$source"
    cp "$source/deploy/image/ready.py" /opt/revstream/ready.py
    /opt/revstream/bin/revstream --version
    ;;
  user)
    # By number, so that Kubernetes can see that it is not root.
    groupadd --gid 10001 revstream
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
      --shell /usr/sbin/nologin revstream
    mkdir /etc/revstream
    ;;
  *)
    echo "usage: build.sh environment|user" >&2
    exit 2
    ;;
esac
