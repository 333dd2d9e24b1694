"""HTTP/1.1 within limits, for every port that is opened: connections, requests, and who is next."""
