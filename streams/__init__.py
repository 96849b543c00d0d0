"""Change streams: from MongoDB to the archive and to those who follow."""
