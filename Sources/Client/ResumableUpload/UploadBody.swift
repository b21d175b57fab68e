// What an upload sends.
//
// Nothing is read here. The invariant: a body says how long it is, or that nobody knows.

extension Upload {
    /// What an upload sends.
    ///
    /// ```swift
    /// Body.file("/var/backups/today.tar")
    /// Body.bytes("hello".utf8)
    /// Body.stream(chunks, length: nil)     // any AsyncSequence of collections of bytes
    /// let (body, writer) = Body.makeStream()
    /// ```
    public struct Body: Sendable {
        enum Source: Sendable {
            case file([UInt8])
            case bytes([UInt8])
            case stream(StreamFeed, length: Int64?)
            case written(PieceChannel, length: Int64?)
        }

        let source: Source

        /// A file, by its path.
        ///
        /// A file that changes while it is sent, or before it is resumed, is refused. What is no regular file is read
        /// as a stream.
        public static func file(_ path: String) -> Body { Body(source: .file(Array(path.utf8))) }

        /// As `file`, by a path that need not be UTF-8: bytes without a zero.
        package static func file(bytes: [UInt8]) -> Body { Body(source: .file(bytes)) }

        /// Bytes in memory, of any collection: an array, a slice, `Data`, the view of a buffer.
        public static func bytes(_ bytes: some Collection<UInt8>) -> Body {
            Body(source: .bytes(Array(bytes)))
        }

        /// Bytes that come by and by, in pieces of any size.
        ///
        /// The next piece is asked for when there is room in `Upload.Options.window`. When the upload is resumed in
        /// another process the stream must give the same bytes again from its beginning; what the server has is
        /// skipped.
        ///
        /// - Parameters:
        ///   - pieces: the bytes, in collections of any kind; an error that it throws ends the upload.
        ///   - length: bytes in all; nil: not known.
        /// - Returns: the body.
        public static func stream<Pieces: AsyncSequence & Sendable>(
            _ pieces: Pieces,
            length: Int64? = nil
        ) -> Body where Pieces.Element: Collection<UInt8> {
            let feed = StreamFeed.asynchronous { add throws in
                for try await piece in pieces {
                    // Of an array this is the array itself.
                    guard await add(Array(piece)) else { return }
                }
            }
            return Body(source: .stream(feed, length: length))
        }

        /// A body that a program writes while it is sent, and the end that it writes to.
        ///
        /// It is good for one run: what the server has not got when that ends is not kept.
        ///
        /// - Parameter length: bytes in all; nil: not known.
        /// - Returns: the body of one upload, and its writer.
        public static func makeStream(length: Int64? = nil) -> (body: Body, writer: Writer) {
            let channel = PieceChannel()
            return (Body(source: .written(channel, length: length)), Writer(channel))
        }

        /// What can be read from an open descriptor until its end, as `stream`.
        ///
        /// The descriptor stays open, and nobody else may read from it until the upload is over.
        public static func descriptor(_ number: Int32, length: Int64? = nil) -> Body {
            Body(source: .stream(.descriptor(number, isOwned: false), length: length))
        }

        /// Says that its run is over.
        func end() {
            if case .written(let channel, _) = source { channel.close() }
        }
    }
}

/// Where a stream's bytes come from.
enum StreamFeed: Sendable {
    /// Hands over each piece, and ends where that says false.
    case asynchronous(@Sendable (_ add: @Sendable ([UInt8]) async -> Bool) async throws -> Void)
    /// Read until the end, and then closed where it is owned.
    case descriptor(Int32, isOwned: Bool)
}
