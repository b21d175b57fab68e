// The destinations of a download.

extension Download {
    /// The destination of a download.
    public struct Destination: Sendable {
        enum Kind: Sendable {
            case file(String)
            case pieces(@Sendable ([UInt8]) throws -> Void)
            case body
        }

        let kind: Kind

        /// A file, written as `PATH.part`, made durable and then renamed.
        ///
        /// If two downloads write to one file at a time, in any process, the second one ends with an error of kind
        /// `.later`. A device, a FIFO or another file that is not regular is written to directly and in order.
        public static func file(_ path: String) -> Destination {
            Destination(kind: .file(path))
        }

        /// The sequence `Download.body`, which the program reads.
        public static var body: Destination { Destination(kind: .body) }

        /// A function that receives the bytes in order; the download waits until it returns.
        ///
        /// An error that it throws ends the download.
        public static func pieces(
            _ take: @escaping @Sendable ([UInt8]) throws -> Void
        ) -> Destination {
            Destination(kind: .pieces(take))
        }
    }
}
