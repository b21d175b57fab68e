// Texts that can stand in one line of a settings file, a log or a message.

extension String {
    /// Whether a control character of either set is in it (U+0000 to U+001F, U+007F to U+009F).
    package var hasControlCharacters: Bool {
        unicodeScalars.contains { $0.properties.generalCategory == .control }
    }

    /// Whether it is an absolute path that can be told in one line.
    package var isAbsolutePath: Bool { hasPrefix("/") && !hasControlCharacters }
}
