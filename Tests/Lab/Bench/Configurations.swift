// nginx's configuration and spoolgate's settings.
//
// One nginx process serves all peers: dav PUT (`/dav/`), client_body_in_file_only (`/file-only/`), the unbuffered proxy
// (`/proxy/`), tusd (`/tus/`), a plain response (`/return/`), and a FastCGI location for each route of spoolgate.

import Glibc

func nginxConfiguration(
    work: String,
    port: UInt16,
    local: String,
    gateway: String,
    tusd: String,
    sinkPort: UInt16,
    identity: Identity?,
    module: String?,
    spoolReceive: SpoolReceive,
    log: String,
    workers: Int
) -> String {
    let gatewayLocation =
        gatewayDirectives + (module == nil ? "" : gatewayDirectivesOfModule(spoolReceive))
    return """
        \(module.map { "load_module \($0);" } ?? "")
        daemon off;
        \(geteuid() == 0 ? "user root;" : "")
        worker_processes \(workers);
        worker_rlimit_nofile \(openFilesLimit());
        error_log \(log) warn;
        pid \(work)/nginx.pid;
        events { worker_connections \(max(openFilesLimit() - 100, 512)); }
        http {
            access_log off;
            default_type application/octet-stream;
            keepalive_timeout 300s;
            keepalive_requests 1000000000;
            client_max_body_size 0;
            client_body_buffer_size 1m;
            client_body_timeout 60s;
            client_body_temp_path \(work)/body;
            proxy_temp_path \(work)/temp;
            fastcgi_temp_path \(work)/temp;
            uwsgi_temp_path \(work)/temp;
            scgi_temp_path \(work)/temp;
            upstream sink { server 127.0.0.1:\(sinkPort) max_fails=0; keepalive 32; }
            upstream gateway {
            server unix:\(gateway) max_fails=0;
            \(module == nil ? "" : "keepalive 64;")
        }
            upstream tusd { server unix:\(tusd) max_fails=0; keepalive 32; }
            server {
                listen 127.0.0.1:\(port) backlog=4096;
                listen unix:\(local) backlog=4096;
                server_name bench.test;
                location /dav/ {
                    root \(work)/html;
                    dav_methods PUT DELETE;
                    create_full_put_path off;
                }
                location /file-only/ {
                    client_body_in_file_only on;
                    proxy_pass http://sink;
                    proxy_http_version 1.1;
                    proxy_pass_request_body off;
                    proxy_set_header Connection "";
                    proxy_set_header Content-Length "";
                    proxy_set_header X-Body-File $request_body_file;
                }
                location /proxy/ {
                    proxy_pass http://sink;
                    proxy_http_version 1.1;
                    proxy_request_buffering off;
                    proxy_set_header Connection "";
                }
                location \(TusUpload.base) {
                    proxy_pass http://tusd;
                    proxy_http_version 1.1;
                    proxy_request_buffering off;
                    proxy_read_timeout 300s;
                    proxy_set_header Connection "";
                    proxy_set_header Host $http_host;
                    proxy_set_header X-Forwarded-Proto $scheme;
                }
                location /return/ { return 200; }
                location / { set $route default; \(gatewayLocation) }
                location /small/ { set $route small; \(gatewayLocation) }
                location /drop/ { set $route drop; \(gatewayLocation) }
                location /drop-process/ { set $route drop-process; \(gatewayLocation) }
            }
            \(identity.map(secureServer) ?? "")
        }

        """
}

/// Terminates TLS for the sink.
private func secureServer(_ identity: Identity) -> String {
    """
    server {
            listen 127.0.0.1:\(identity.port) ssl;
            ssl_certificate \(identity.certificate);
            ssl_certificate_key \(identity.key);
            ssl_session_cache shared:bench:1m;
            location / {
                proxy_pass http://sink;
                proxy_http_version 1.1;
                proxy_request_buffering off;
                proxy_set_header Connection "";
            }
        }
    """
}

private func gatewayDirectivesOfModule(_ spoolReceive: SpoolReceive) -> String {
    """

                interim_responses 104 100;
                spool_receive \(spoolReceive);
                fastcgi_param SPOOLGATE_INTERIM "104 100";

    """
}

private let gatewayDirectives = """

                fastcgi_pass gateway;
                fastcgi_request_buffering off;
                fastcgi_keep_conn on;
                fastcgi_read_timeout 300s;
                fastcgi_send_timeout 120s;
                fastcgi_ignore_client_abort off;
                fastcgi_ignore_headers X-Accel-Redirect X-Accel-Buffering X-Accel-Expires;
                fastcgi_param SPOOLGATE_ROUTE $route;
                fastcgi_param QUERY_STRING $query_string;
                fastcgi_param REQUEST_METHOD $request_method;
                fastcgi_param REQUEST_URI $request_uri;
                fastcgi_param REQUEST_SCHEME $scheme;
                fastcgi_param CONTENT_TYPE $content_type;
                fastcgi_param CONTENT_LENGTH $content_length;
                fastcgi_param SERVER_PROTOCOL $server_protocol;
                fastcgi_param REMOTE_ADDR $remote_addr;

    """

/// spoolgate's settings: `default` and `small` deliver to the sink, `drop` and `drop-process` into a directory, each
/// with another promise.
///
/// Threads are the default, unless section E needs more.
func gatewaySettings(
    work: String,
    socket: String,
    sinkURL: String,
    authority: String?,
    threads: Int,
    promise: String,
    hasLane: Bool
) -> String {
    let upstream =
        "spool-receive: \(hasLane ? "on" : "off")\n    promise: \(promise)\n    upstream: \"\(sinkURL)\""
        + (authority.map { "\n    tls: {ca: \"\($0)\"}" } ?? "")
    return """
        listen: "unix:\(socket)"
        socket-mode: "0666"
        spool:
          directory: "\(work)/spool"
          reserve: 64MiB
        clients: {maximum-concurrent: 0, maximum-uploads: 0}
        log-level: warning\(threads > 4096 ? "\nthreads:\n  maximum: \(threads)" : "")
        routes:
          default:
            \(upstream)
            limits:
              min-size: 128KiB
          small:
            \(upstream)
            limits:
              min-size: 0
          drop:
            spool-receive: \(hasLane ? "on" : "off")
            promise: power-cut
            upstream: "directory:\(work)/drop"
            limits:
              min-size: 0
          drop-process:
            spool-receive: \(hasLane ? "on" : "off")
            promise: process
            upstream: "directory:\(work)/drop"
            limits:
              min-size: 0

        """
}

/// Raises the soft limit of open files to the hard limit; children inherit it.
func raiseOpenFilesLimit() {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit) == 0 else {
        return
    }
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit)
}

func openFilesLimit() -> Int {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit) == 0 else {
        return 1024
    }
    return Int(clamping: min(limit.rlim_cur, 1 << 20))
}
