"""`python -m gql` is `revstream`."""

from gql.cli import main

main()
