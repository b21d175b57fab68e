// Where a download goes.

extension Download {
    /// Where a download goes.
    public struct Destination: Sendable {
        enum Kind: Sendable {
            case file(String)
            case pieces(@Sendable ([UInt8]) throws -> Void)
        }

        let kind: Kind

        /// A file: written beside it as `PATH.part`, made durable and then renamed.
        public static func file(_ path: String) -> Destination {
            Destination(kind: .file(path))
        }

        /// A function that gets the bytes in order and that the server waits for.
        ///
        /// What it throws ends the download.
        public static func pieces(
            _ take: @escaping @Sendable ([UInt8]) throws -> Void
        ) -> Destination {
            Destination(kind: .pieces(take))
        }
    }
}
