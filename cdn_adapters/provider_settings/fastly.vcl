# Fastly: what a service before a Quaestor application needs. Upload as custom VCL, or put each part into a VCL snippet of its kind.
# Purges: a token with the scope `purge_select`, limited to this service. Tag field: Surrogate-Key, which Fastly keeps to itself.

sub vcl_recv {
#FASTLY recv
  # Purges by URL need the token too; without this anybody can purge any URL.
  if (req.method == "FASTLYPURGE") {
    set req.http.Fastly-Purge-Requires-Auth = "1";
  }
  return(lookup);
}

sub vcl_fetch {
  declare local var.seconds INTEGER;
#FASTLY fetch
  # CDN-Cache-Control says how long a CDN may keep an answer; Cache-Control is for browsers. Neither is guessed.
  if (beresp.http.CDN-Cache-Control ~ "(?i)(no-store|private)" || beresp.http.Set-Cookie) {
    return(pass);
  }
  if (beresp.http.CDN-Cache-Control ~ "(?i)max-age=([0-9]+)") {
    set var.seconds = std.atoi(re.group.1);
  } else if (beresp.http.Cache-Control ~ "(?i)(no-store|private|no-cache)") {
    return(pass);
  } else if (beresp.http.Cache-Control ~ "(?i)s-maxage=([0-9]+)") {
    set var.seconds = std.atoi(re.group.1);
  } else {
    return(pass);
  }
  set beresp.ttl = 1s;
  set beresp.ttl *= var.seconds;
  # Served after a purge that is not soft: nothing. After its lifetime: nothing, either.
  set beresp.stale_while_revalidate = 0s;
  set beresp.stale_if_error = 0s;
  return(deliver);
}
