"""Example shop: its data, and programs that write to it without knowing of revstream.

data.py      the goods, suppliers, customers and devices at the start
writers.py   later writes: price changes, orders in transactions, sensors, withdrawn goods
run.py       `revstream demo`: load once, print the addresses, write until stopped
"""

from revstream.gql.cli.demo.run import demo_settings, play

__all__ = ["demo_settings", "play"]
