// Where a download goes.

extension Download {
    /// Where a download goes.
    public struct Destination: Sendable {
        enum Kind: Sendable {
            case file(String)
            case pieces(@Sendable ([UInt8]) throws -> Void)
            case body
        }

        let kind: Kind

        /// A file: written beside it as `PATH.part`, made durable and then renamed.
        ///
        /// Of two downloads at a time into one file, in whatever process, the second ends with an error of kind `.later`.
        /// What is no regular file, such as a device or a FIFO, is written to directly and in order.
        public static func file(_ path: String) -> Destination {
            Destination(kind: .file(path))
        }

        /// The sequence `Download.body`, which the program reads.
        public static var body: Destination { Destination(kind: .body) }

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
