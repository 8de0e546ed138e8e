"""What others run a server with: Kubernetes, Helm, Compose, systemd. Texts only; nothing runs."""
