"""`python -m gql` is `revstream`."""

from revstream.gql.cli.main import main

main()
