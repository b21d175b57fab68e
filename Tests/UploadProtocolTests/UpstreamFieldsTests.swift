// The upstream's fields next to the gateway's: each singleton field occurs once.

import HTTPTypes
import Testing

import SpoolgateUploadProtocol

@Suite struct UpstreamFieldsTests {
    private static let limits = UploadLimits(maxSize: 9, maxAge: 60)
    /// Fields that occur once in a response (RFC 9110, RFC 9111).
    private static let single = [
        "cache-control", "location", "content-location", "expires", "content-type", "tus-resumable",
        "upload-offset", "upload-complete",
    ]

    @Test(
        "no field of the gateway's own occurs next to the upstream's",
        arguments: [200, 201, 204, 303, 400, 404, 409, 500],
        [nil, "/files/upload-resource/1"] as [String?]
    )
    func single(status: Int, location: String?) {
        let contentLocation = HTTPField.Name.made("content-location")
        let upstream = ResponseHead(
            status: HTTPResponse.Status(code: status),
            fields: [
                .cacheControl: "max-age=60", .location: "/made", contentLocation: "/made/1",
                .expires: "Thu, 01 Dec 1994 16:00:00 GMT", .contentType: "text/plain",
            ]
        )
        var builders: [any ResponseWording] = [
            ResponseBuilder(dialect: .newest, limits: Self.limits),
            ResponseBuilder(dialect: .rfc, limits: Self.limits),
        ]
        for method in [HTTPRequest.Method.post, .patch] {
            for reportsResponse in [true, false] {
                let head = RequestHead(
                    method: method,
                    target: "/files",
                    fields: [:],
                    contentLength: .known(0)
                )
                builders.append(
                    TusResponseBuilder(
                        head,
                        limits: Self.limits,
                        reportsResponse: reportsResponse,
                        now: 0
                    )
                )
            }
        }
        for builder in builders {
            let fields: HTTPFields = builder.final(
                upstream,
                isSuccess: true,
                offset: 5,
                location: location
            ).head.fields
            let names = fields.map { $0.name.canonicalName }
            for name in Self.single {
                #expect(names.count { $0 == name } <= 1, "\(name) of \(builder.dialect)")
            }
            guard builder.dialect == .tus else { continue }
            #expect(fields[.cacheControl] == "no-store" && !names.contains("expires"))
            if status < 400, let location {
                #expect(fields[.location] == location && fields[contentLocation] == "/made")
            }
        }
    }
}
