# Varnish before lmi-backend: docs/fleet.md
vcl 4.1;

backend server {
  .host = "127.0.0.1";
  .port = "8080";
  # Between two bytes: an answer that is not streamed has its first byte when it is complete.
  .first_byte_timeout = 1h;
  .between_bytes_timeout = 1h;
}

sub vcl_recv {
  # Nothing is cached. With `pass`, a request continues in the engine when its client disconnects
  # before the answer.
  return (pipe);
}
