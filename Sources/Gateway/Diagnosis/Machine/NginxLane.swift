// The settings of nginx for writing content into the spool.

extension NginxDump {
    /// Returns the settings that decide whether nginx writes a location's content into the spool.
    ///
    /// `place` must pass requests to the gateway.
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
    /// The directive `spool_receive` in effect.
    ///
    /// In a block with several, one that is `off` has precedence.
    fileprivate var spoolReceive: NginxDirective? {
        for block in around {
            let found = (block.block ?? []).filter { $0.name == "spool_receive" }
            let off = found.first(where: \.saysOff)
            if let directive = off ?? found.last { return directive }
        }
        return nil
    }

    /// Whether `fastcgi_pass` is a variable, which may name a unix socket.
    fileprivate var isVariable: Bool {
        value(of: "fastcgi_pass")?.arguments.first?.hasPrefix("$") ?? false
    }
}
