// What nginx's files and processes say of content that nginx may write into the spool by itself.

extension NginxDump {
    /// What is in force at a place.
    ///
    /// - Parameters:
    ///   - place: a location that hands requests to the gateway.
    ///   - processes: what runs of this nginx.
    /// - Returns: the directives that decide whether nginx can offer to write content.
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
    /// The directive in force; if one block has several, one that says `off` is enough.
    fileprivate var spoolReceive: NginxDirective? {
        for block in around {
            let found = (block.block ?? []).filter { $0.name == "spool_receive" }
            let off = found.first(where: \.saysOff)
            if let directive = off ?? found.last { return directive }
        }
        return nil
    }

    /// Whether a variable names the gateway's address, which may be a socket.
    fileprivate var isVariable: Bool {
        value(of: "fastcgi_pass")?.arguments.first?.hasPrefix("$") ?? false
    }
}
