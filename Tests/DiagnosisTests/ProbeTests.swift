// A probe's requests, sent to a scripted server.

@testable import SpoolgateDiagnosis
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("Requests of a probe")
struct ProbeTests {
    @Test(
        "after a reload, old nginx workers may respond: an unknown path is requested once more"
    )
    func reload() throws {
        for settled in ["413 Content Too Large", "404 Not Found"] {
            let origin = try LoopbackOrigin { connection in
                while var request = try connection.receiveHead() {
                    try connection.receiveContent(of: &request)
                    let isOld = request.number < 1
                    try connection.response(
                        request.method == "POST" && !isOld ? settled : "404 Not Found"
                    )
                }
            }
            let url = try #require(ProbeURL(origin.base + "/files/"))
            let findings = Monitor<[Finding]>([])
            UploadProbe(ProbeOptions(url), isStopped: { false }) { finding in
                findings.update { $0.append(finding) }
            }
            .run()
            let gateway = try #require(findings.update { $0 }.first { $0.name == "gateway" })
            #expect(gateway.level == .failure && gateway.text.contains(settled.prefix(3)))
            #expect(origin.requests.count { $0.method == "POST" } == 2)
        }
    }
}
