"""Durable background jobs for Django."""
