// Where events go, and for how long: values, decoding, and the way they are written.

import Posix
import TextFormats
import UploadProtocol

/// Where the events of uploads go.
package struct EventSettings: Sendable, Equatable {
    /// Where each event becomes a line.
    package enum Destination: Sendable, Equatable {
        /// Standard error.
        case journal
        /// A file's absolute path.
        case file(String)
    }

    /// Where each event becomes a line; nil: nowhere.
    package var destination: Destination?
    /// Who gets each event by POST.
    package var webhook = ServiceSettings()
    /// How long an event is tried again.
    package var lifetime = Duration.seconds(86_400)

    /// The product's defaults.
    package init() {}

    /// Takes the keys of the section `events`.
    package init(_ section: SettingsSection) throws(SettingsError) {
        self.init()
        var section = section
        destination = try section.value("to", expecting: "an absolute path or journal") { text in
            text == "journal" ? .journal : text.isAbsolutePath ? .file(text) : nil
        }
        var webhook = try section.section("webhook")
        try self.webhook.decode(&webhook)
        lifetime = try webhook.duration("lifetime", seconds: 1...2_592_000) ?? lifetime
        try webhook.finish()
        try section.finish()
    }

    /// The settings as they are written.
    package var table: [(key: String, value: String)] {
        let to =
            switch destination {
            case nil: ""
            case .journal: "journal"
            case .file(let path): path
            }
        return [("events.to", to)] + webhook.table("events.webhook")
            + [("events.webhook.lifetime", DurationText.text(lifetime))]
    }
}
