"""The edge: GraphQL over HTTP and WebSocket, settings, commands, pages."""
