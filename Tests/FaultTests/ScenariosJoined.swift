// Scenarios of uploads joined from parts (tus, "concatenation").

import SpoolgateUploadProtocol

@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension Scenario {
    static let joined = [
        joining("joined", [second, 9001]) { world, client in try client.join(on: world.daemon) },
        joining("joined of three, its answer lost", [first, first, second]) { world, client in
            // One part is empty.
            try client.join(on: world.daemon)
            try client.join(on: world.daemon)
        },
        joining("joined, not reached", [first, second]) { world, client in
            world.origin.setReachable(false)
            try client.join(on: world.daemon)
            world.origin.setReachable(true)
            try client.join(on: world.daemon)
        },
        joining("joined in another order", [first, second]) { world, client in
            guard try client.join(on: world.daemon) == 201 else { throw Stopped() }
            let status = try client.join([1, 0], on: world.daemon)
            if status == 201 { world.complain("parts were joined twice") }
        },
        joining("joined, queued by an operator", [first, second]) { world, client in
            client.isQueuedByOperator = true
            try client.join(on: world.daemon)
        },
        joining("joined, accepted", [first, second], { $0.reply = .accepted }) { world, client in
            try client.join(on: world.daemon)
            try world.runQueue(client)
            try client.join(on: world.daemon)
        },
        joining("joined, promised until a power cut", [first, second], { $0.promise = .process }) {
            world,
            client in
            try client.join(on: world.daemon)
        },
        joining(
            "joined, promised until a power cut, of parts that are promised more",
            [first, second]
        ) {
            world,
            client in
            world.settings.routes[RouteSettings.defaultName]?.promise = .process
            world.reload()
            try client.join(on: world.daemon)
        },
    ]

    private static func joining(
        _ name: String,
        _ ends: [Int],
        _ change: @escaping @Sendable (inout RouteSettings) -> Void = { _ in },
        _ run: @escaping @Sendable (World, JoiningClient) throws -> Void
    ) -> Scenario {
        Scenario(
            name: name,
            adjust: { settings in
                var route = settings.routes[RouteSettings.defaultName] ?? RouteSettings()
                change(&route)
                settings.routes[RouteSettings.defaultName] = route
            },
            run: { world in
                let client = world.joiner(parts: ends)
                try client.uploadAll(on: world.daemon)
                try run(world, client)
            }
        )
    }
}
