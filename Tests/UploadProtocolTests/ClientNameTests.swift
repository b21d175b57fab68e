// The identity of clients.

import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@Suite struct ClientNameTests {
    private func name(_ address: String?) -> ClientName { ClientName(owner: nil, address: address) }

    @Test("an owner is one client on every address, and no address is an owner")
    func owners() {
        let here = ClientName(owner: "alice", address: "192.0.2.1")
        #expect(here == ClientName(owner: "alice", address: "2001:db8::1"))
        #expect(here != ClientName(owner: "bob", address: "192.0.2.1"))
        #expect(ClientName(owner: "192.0.2.1", address: nil) != name("192.0.2.1"))
        #expect(here.description == "alice")
    }

    @Test("each IPv4 address is a client, also in its IPv6 form")
    func oldAddresses() {
        #expect(name("192.0.2.1") != name("192.0.2.2"))
        #expect(name("::ffff:192.0.2.1") == name("192.0.2.1"))
        #expect(name("192.0.2.1").description == "192.0.2.1")
        #expect(name(nil).description == "-")
    }

    @Test(
        "the addresses of one IPv6 network of 64 bits are one client, however they are written",
        arguments: [
            ("2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff"),
            ("2001:db8:0:1::5", "2001:0DB8:0000:0001:2:3:4:5"),
            ("2001:db8::5", "2001:db8::a:b:c:d"), ("::1", "0:0:0:0:9:9:9:9"),
            ("fe80::1", "fe80::2:3"),
        ]
    )
    func networks(_ addresses: (String, String)) {
        #expect(name(addresses.0) == name(addresses.1))
    }

    @Test("other networks are other clients")
    func otherNetworks() {
        #expect(name("2001:db8:0:1::1") != name("2001:db8:0:2::1"))
        #expect(name("2001:db8::1:0:0:0:1") != name("2001:db8::2:0:0:0:1"))
        #expect(name("2001:db8:0:1::1").description == "2001:db8:0:1::/64")
    }
}
