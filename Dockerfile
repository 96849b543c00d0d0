# The gateway, without MongoDB. docs/how-to/install.md says how to run it.
FROM python:3.13-slim AS build
COPY . /source
RUN /source/deploy/image/build.sh environment

FROM python:3.13-slim
LABEL org.opencontainers.image.title="revstream" \
      org.opencontainers.image.description="A GraphQL gateway for MongoDB that never forgets" \
      org.opencontainers.image.licenses="MIT"
RUN --mount=type=bind,source=deploy/image,target=/image /image/build.sh user
COPY --from=build /opt/revstream /opt/revstream
ENV PATH=/opt/revstream/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    REVSTREAM_HOST=0.0.0.0 \
    REVSTREAM_SCHEMA=/etc/revstream/schema.graphql
WORKDIR /etc/revstream
USER 10001:10001
EXPOSE 8000
# Subscribers are told to resume elsewhere. This takes at most 17 s: allow 30 s (docker stop --timeout).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-I", "/opt/revstream/ready.py"]
ENTRYPOINT ["revstream"]
CMD ["serve"]
