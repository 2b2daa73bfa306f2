"""The Redis engine, for Redis from 6.2 and Valkey from 7.2."""

from djqueue.engines.redis.engine import RedisEngine

__all__ = ["RedisEngine"]
