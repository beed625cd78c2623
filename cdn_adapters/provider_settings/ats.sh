# Apache Traffic Server in front of a Quaestor application: run this with sh; it writes the configuration files. Written for 9.2.
#
# What is kept, and for how long, the application says in CDN-Cache-Control (RFC 9213); nothing else is kept, and nothing is
# served after that. What must go earlier is purged by URL, or all together.
set -eu
folder=@folder@
mkdir -p "$folder"

cat > "$folder/records.config" <<'END'
CONFIG proxy.config.http.server_ports STRING @port@
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.reverse_proxy.enabled INT 1
CONFIG proxy.config.http.cache.http INT 1
CONFIG proxy.config.http.wait_for_cache INT 1
CONFIG proxy.config.http.cache.required_headers INT 2
CONFIG proxy.config.http.cache.when_to_revalidate INT 0
CONFIG proxy.config.http.cache.cache_urls_that_look_dynamic INT 1
CONFIG proxy.config.http.cache.cache_responses_to_cookies INT 1
CONFIG proxy.config.http.cache.max_stale_age INT 0
CONFIG proxy.config.http.negative_caching_enabled INT 0
CONFIG proxy.config.http.negative_revalidating_enabled INT 0
CONFIG proxy.config.http.push_method_enabled INT 0
CONFIG proxy.config.log.logging_enabled INT 0
END

# The key of an answer is the URL that clients ask for, with its host. remap_purge keeps the number of the generation.
cat > "$folder/remap.config" <<'END'
map / http://@app_host@:@app_port@/ @plugin=cachekey.so @pparam=--uri-type=pristine @plugin=header_rewrite.so @pparam=quaestor.rules @plugin=remap_purge.so @pparam=--header=Quaestor-Purge-Everything @pparam=--secret=@token@ @pparam=--state-file=quaestor
END

cat > "$folder/ip_allow.yaml" <<'END'
ip_allow:
  # The hosts of the application.
  - apply: in
    ip_addrs: @purger@
    action: allow
    methods: ALL
  - apply: in
    ip_addrs: 0/0
    action: deny
    methods: [PURGE, PUSH, CONNECT, TRACE]
  - apply: in
    ip_addrs: ::/0
    action: deny
    methods: [PURGE, PUSH, CONNECT, TRACE]
END

cat > "$folder/quaestor.rules" <<'END'
cond %{REMAP_PSEUDO_HOOK} [AND]
cond %{METHOD} ="PURGE" [AND]
cond %{CLIENT-HEADER:Quaestor-Purge-Token} ="@token@" [NOT]
set-status 403

# Past the cache: known users; and hosts with upper case, which no browser sends and a key would tell apart.
cond %{REMAP_PSEUDO_HOOK} [AND]
cond %{CLIENT-HEADER:Cookie} ="" [NOT,OR]
cond %{CLIENT-HEADER:Authorization} ="" [NOT,OR]
cond %{CLIENT-HEADER:Host} /[A-Z]/
set-config proxy.config.http.cache.http 0

cond %{REMAP_PSEUDO_HOOK} [AND]
cond %{METHOD} ="PURGE"
set-config proxy.config.http.cache.http 1

cond %{SEND_REQUEST_HDR_HOOK}
rm-header Quaestor-Purge-Token
rm-header Quaestor-Purge-Everything

# Cache-Control is for browsers. It is put aside while the answer is kept, and what CDN-Cache-Control says stands in its place.
cond %{READ_RESPONSE_HDR_HOOK}
set-header Quaestor-Answer 1
set-header Quaestor-Cache-Control %{HEADER:Cache-Control}
set-header Cache-Control no-store

cond %{READ_RESPONSE_HDR_HOOK} [AND]
cond %{HEADER:CDN-Cache-Control} /(?i)(^|[\s,])max-age=[0-9]+/ [AND]
cond %{HEADER:CDN-Cache-Control} /(?i)(^|[\s,])(no-store|no-cache|private)\b/ [NOT,AND]
cond %{HEADER:Set-Cookie} ="" [AND]
cond %{HEADER:Vary} /\*/ [NOT]
set-header Cache-Control %{HEADER:CDN-Cache-Control}
rm-header Expires

cond %{SEND_RESPONSE_HDR_HOOK} [AND]
cond %{METHOD} ="PURGE"
set-header Quaestor-Purged 1

cond %{SEND_RESPONSE_HDR_HOOK} [AND]
cond %{HEADER:Quaestor-Answer} ="1"
rm-header Cache-Control

cond %{SEND_RESPONSE_HDR_HOOK} [AND]
cond %{HEADER:Quaestor-Cache-Control} ="" [NOT]
set-header Cache-Control %{HEADER:Quaestor-Cache-Control}

cond %{SEND_RESPONSE_HDR_HOOK}
rm-header Quaestor-Answer
rm-header Quaestor-Cache-Control
rm-header CDN-Cache-Control
rm-header Quaestor-Live
END
: > "$folder/plugin.config"
