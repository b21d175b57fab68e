// The directives and limits of nginx that decide whether it writes content into the spool directly.

extension NginxDump {
    /// Returns the state of nginx at a location.
    ///
    /// - Parameters:
    ///   - place: a location that passes requests to the gateway.
    ///   - processes: the processes of this nginx.
    /// - Returns: the state that decides whether nginx can offer to write content.
    func lane(at place: NginxPlace, _ processes: NginxProcesses) -> NginxLane {
        NginxLane(
            directive: place.spoolReceive,
            isBuffering: place.value(of: "fastcgi_request_buffering")?.arguments.first != "off",
            passesFiles: socket(of: place) != nil || place.isVariable,
            hasModule: loadsModule || place.value(of: "interim_responses") != nil,
            fileSizeLimit: processes.fileSizeLimit
        )
    }

    private var loadsModule: Bool {
        directives.contains { directive in
            directive.name == "load_module"
                && directive.arguments.contains { $0.hasSuffix("ngx_http_interim_module.so") }
        }
    }
}

extension NginxPlace {
    /// The effective directive; in a block with several, one that is `off` wins.
    fileprivate var spoolReceive: NginxDirective? {
        for block in around {
            let found = (block.block ?? []).filter { $0.name == "spool_receive" }
            let off = found.first(where: \.saysOff)
            if let directive = off ?? found.last { return directive }
        }
        return nil
    }

    /// Whether the gateway's address is a variable, which may name a socket.
    fileprivate var isVariable: Bool {
        value(of: "fastcgi_pass")?.arguments.first?.hasPrefix("$") ?? false
    }
}
