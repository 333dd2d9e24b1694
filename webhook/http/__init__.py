"""HTTP/1.1 with limits, for every port that is opened: connections, requests, and the order of answers."""
