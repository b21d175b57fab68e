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

        /// A file; the content is written to `PATH.part`, made durable and then renamed.
        ///
        /// A run throws `.later` if another download in any process is writing to the same file. A file that is not
        /// regular, such as a device or a FIFO, is written to directly and in order.
        public static func file(_ path: String) -> Destination {
            Destination(kind: .file(path))
        }

        /// The sequence `Download.body`; the program reads the content from it.
        public static var body: Destination { Destination(kind: .body) }

        /// A function that receives the bytes in order; the download waits until each call returns.
        ///
        /// An error that the function throws ends the download.
        public static func pieces(
            _ take: @escaping @Sendable ([UInt8]) throws -> Void
        ) -> Destination {
            Destination(kind: .pieces(take))
        }
    }
}
