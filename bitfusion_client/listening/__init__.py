"""Ports that anybody may reach: connections are taken a few at a time, bounded in number and in time."""
