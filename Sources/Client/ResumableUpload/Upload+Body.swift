// The content of an upload.
//
// The invariant: a body states its length, or that it is unknown.

extension Upload {
    /// The content of an upload.
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
        /// The run throws `.changed` if the file changes while it is sent or before it is resumed. A file that is not
        /// regular is read as a stream.
        public static func file(_ path: String) -> Body { Body(source: .file(Array(path.utf8))) }

        /// A file whose path need not be valid UTF-8; `bytes` must not contain a zero.
        package static func file(bytes: [UInt8]) -> Body { Body(source: .file(bytes)) }

        /// Bytes in memory, from any collection: an array, a slice, `Data`, the view of a buffer.
        public static func bytes(_ bytes: some Collection<UInt8>) -> Body {
            Body(source: .bytes(Array(bytes)))
        }

        /// A sequence of byte collections of any size; an error thrown by the sequence ends the upload.
        ///
        /// The next piece is requested once there is space in `Upload.Options.window`. To resume in another process,
        /// the stream must yield the same bytes again from its beginning; bytes that the server has are skipped. Pass
        /// nil as `length` if the number of bytes is unknown.
        public static func stream<Pieces: AsyncSequence & Sendable>(
            _ pieces: Pieces,
            length: Int64? = nil
        ) -> Body where Pieces.Element: Collection<UInt8> {
            let feed = StreamFeed.asynchronous { add throws in
                for try await piece in pieces {
                    // An array is not copied here.
                    guard await add(Array(piece)) else { return }
                }
            }
            return Body(source: .stream(feed, length: length))
        }

        /// A body that a program writes while it is sent, and its writer.
        ///
        /// The body is valid for one run, because bytes that the server has not received at the end of the run are
        /// discarded.
        ///
        /// - Parameter length: the total number of bytes; nil if unknown.
        /// - Returns: the body of one upload, and its writer.
        public static func makeStream(length: Int64? = nil) -> (body: Body, writer: Writer) {
            let channel = PieceChannel()
            return (Body(source: .written(channel, length: length)), Writer(channel))
        }

        /// A stream read from an open descriptor until its end.
        ///
        /// The descriptor stays open; no other code may read from it until the upload has ended.
        public static func descriptor(_ number: Int32, length: Int64? = nil) -> Body {
            Body(source: .stream(.descriptor(number, isOwned: false), length: length))
        }

        func end() {
            if case .written(let channel, _) = source { channel.close() }
        }
    }
}

enum StreamFeed: Sendable {
    /// Passes on each piece until `add` returns false.
    case asynchronous(@Sendable (_ add: @Sendable ([UInt8]) async -> Bool) async throws -> Void)
    /// Reads until the end, then closes the descriptor if it is owned.
    case descriptor(Int32, isOwned: Bool)
}
