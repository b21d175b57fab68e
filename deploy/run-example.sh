# shellcheck shell=bash disable=SC2154 # run.sh assigns the variables
# The output of deploy/run.sh when it serves: commands to paste into another terminal, for an upload that
# is interrupted and resumed. Sourced. README's section "Try it" has the same commands.
#
# They create files only in STATE, and end by themselves.

example_bytes=104857600

# If the module is loaded, the upload begins like URLSession's: with all content, and the 104 names the upload
# resource. Otherwise the upload resource is created first.
print_beginning() { # file, head
    if [ -n "$has_module" ]; then
        cat <<EXAMPLE
# start the upload; curl receives the 104 and stops after a second (error 28)
curl --max-time 1 --limit-rate 50M -D $2 -H 'Upload-Draft-Interop-Version: 10' -H 'Upload-Complete: ?1' -T $1 http://localhost:$PORT/files/100mb.bin
cat $2; url=\$(tr -d '\r' < $2 | sed -n 's/^[Ll]ocation: //p')
EXAMPLE
    else
        cat <<EXAMPLE
# create an upload resource
url=\$(curl -sS -D - -X POST -H 'Upload-Complete: ?0' -H 'Upload-Length: $example_bytes' http://localhost:$PORT/files/100mb.bin | tr -d '\r' | sed -n 's/^[Ll]ocation: //p'); echo "\$url"

# send the content; curl stops after a second (error 28)
curl --max-time 1 --limit-rate 50M -X PATCH -H 'Upload-Offset: 0' -H 'Upload-Complete: ?1' -H 'Content-Type: application/partial-upload' -T $1 "\$url"
EXAMPLE
    fi
}

print_session() {
    local file head list marks=''
    file=$(printf %q "$STATE/100mb.bin")
    head=$(printf %q "$STATE/100mb.head")
    list=$(printf '%q list --spool %q' "$SPOOLGATE" "$STATE/spool")
    cat <<EXAMPLE

Open http://localhost:$PORT/upload/ in a browser and drop files there.
Status page (this machine only): http://localhost:$PORT/-/spoolgate/

spoolgate serves http://localhost:$PORT/files/ and https://localhost:$TLS_PORT/files/ (HTTP/2)
  listens on   $reach
  host names   $(server_names)
  delivers to  ${UPSTREAM:-$DROP}
  state, logs  $STATE
Press Ctrl-C to stop. In another terminal:

# create a file of 100 MB
head -c 100M /dev/urandom > $file

$(print_beginning "$file" "$head")

# retrieve the offset
offset=\$(curl -sS -I "\$url" | tr -d '\r' | sed -n 's/^[Uu]pload-[Oo]ffset: //p'); echo "\$offset of $example_bytes bytes"
$list

# send the rest; the response is the upstream's
tail -c +\$((offset + 1)) $file | curl -sS -i -X PATCH -H "Upload-Offset: \$offset" -H 'Upload-Complete: ?1' -H 'Content-Type: application/partial-upload' -T - "\$url"

EXAMPLE
    if [ -z "$UPSTREAM" ]; then
        printf '# compare the delivered file with the original\n'
        # shellcheck disable=SC2016 # a person's shell expands it
        printf 'cmp %s "$(ls -t %q/*100mb.bin | head -n 1)" && echo identical\n\n' "$file" "$DROP"
    fi
    if [ -n "$has_module" ]; then
        printf '# send the file over TLS and HTTP/2, without an interruption\n'
        marks="-H 'Upload-Draft-Interop-Version: 10' -H 'Upload-Complete: ?1' "
    else
        printf '# an ordinary upload over TLS and HTTP/2\n'
    fi
    printf 'curl -sS -i --cacert %q %s-T %s https://localhost:%s/files/whole.bin\n\n' \
        "$STATE/tls/certificate.pem" "$marks" "$file" "$TLS_PORT"
}
