"""What revstream costs: scripts that print figures, each beside an alternative in the same run.

Never imported by the rest.
"""
