"""What others run a server with: Kubernetes, Docker Compose, systemd. Texts only; nothing runs."""
