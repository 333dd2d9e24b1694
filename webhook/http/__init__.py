"""Serves HTTP/1.1 on every port that is opened, with limits for connections and requests, in a fair order."""
