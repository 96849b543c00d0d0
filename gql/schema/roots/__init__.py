"""Fields of Query, Mutation and Subscription."""
