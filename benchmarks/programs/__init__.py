"""Programs that run in processes of their own, so that they share neither core nor interpreter with
the gateway.
"""
