"""What tests share: servers, engines, streams, traffic, hostile bodies, attackers, waiting."""
