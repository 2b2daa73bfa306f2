"""Jobs between a transaction and a store that lies outside of it."""
