"""The example shop, loaded and being written to, by programs that know nothing of revstream.

shop.py      the goods, suppliers, customers and devices that it begins with
writers.py   what goes on writing: price changes, orders in transactions, sensors, withdrawn goods
play.py      `revstream demo`: load once, print where to look, write until stopped
"""

from revstream.gql.cli.demo.run import demo_settings, play

__all__ = ["demo_settings", "play"]
