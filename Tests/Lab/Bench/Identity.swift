// The sink's TLS identity: a key and a self-signed certificate.

struct Identity {
    let port: UInt16
    /// A PEM file, which clients receive as their authority.
    let certificate: String
    let key: String

    init(in directory: String, log: String) throws {
        port = try freePort()
        certificate = directory + "/sink.pem"
        key = directory + "/sink.key"
        _ = try CommandRun(
            "openssl",
            program: findProgram("openssl"),
            arguments: [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=bench",
                "-addext", "subjectAltName=IP:127.0.0.1",
            ],
            output: directory + "/openssl.out",
            log: log
        )
    }
}
