// The status as a page for a browser. A script replaces changed parts every five seconds, but not while text is
// selected; without scripts the browser reloads the page.
//
// Invariant: all text that does not come from this file is escaped by `HTML.text`.

import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats

enum HTML {
    /// Escapes text so that the page shows it unchanged.
    static func text(_ text: String) -> String {
        var escaped = ""
        for scalar in text.forTerminal.unicodeScalars {
            switch scalar {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            case "'": escaped += "&#39;"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }

    /// Returns an HTML element that contains only text.
    static func element(_ name: String, _ content: String, class kind: String = "") -> String {
        let attribute = kind.isEmpty ? "" : " class=\"\(kind)\""
        return "<\(name)\(attribute)>\(text(content))</\(name)>"
    }
}

extension Status {
    var html: String {
        let kind = level.rawValue.lowercased()
        return """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <noscript><meta http-equiv="refresh" content="5"></noscript>
            <title>\(HTML.text("\(level.rawValue): spoolgate on \(host)"))</title>
            <link rel="stylesheet" href="style.css">
            <script src="page.js" defer></script>
            </head>
            <body>
            <header class="\(kind)">
            \(HTML.element("h1", "spoolgate on \(host)"))
            <p><strong>\(HTML.text(level.rawValue))</strong> <span>\(HTML.text(line))</span></p>
            \(list(furtherConcerns))
            </header>
            <main>
            \(needsAttention)\(fails)\(receives)\(waits)\(partialPart)\(isHeld)\(recent)\(goesTo)\(spacePart)
            </main>
            <footer>\(HTML.text("\(running), \(now)"))</footer>
            <p id="note" role="status"></p>
            </body>
            </html>

            """
    }

    private func list(_ words: [String]) -> String {
        let items = words.map { HTML.element("li", $0) }.joined()
        return words.isEmpty ? "" : "<ul role=\"list\">\(items)</ul>"
    }

    /// Returns a section with one row for each upload.
    ///
    /// If there are no uploads, the section contains the text `none`; if `none` is nil too, the result is empty.
    private func part<Element>(
        _ title: String,
        _ part: Part<Element>,
        ordinary: Int = 0,
        none: String? = nil,
        _ row: (Element) -> String
    ) -> String {
        let count = part.count + ordinary
        var html = "<section><h2>\(HTML.text(title)) <span>\(count)</span></h2>"
        if count == 0 {
            guard let none else { return "" }
            html += HTML.element("p", none, class: "none")
        }
        html += rows(part, row)
        if part.rest > 0 {
            html += HTML.element("p", "and \(part.rest) more: spoolgate list", class: "none")
        }
        if ordinary > 0 { html += HTML.element("p", ordinaryWords, class: "none") }
        return html + "</section>\n"
    }

    private func rows<Element>(_ part: Part<Element>, _ row: (Element) -> String) -> String {
        let rows = part.first.map(row).joined(separator: "\n")
        return rows.isEmpty ? "" : "<ul class=\"rows\" role=\"list\">\(rows)</ul>"
    }

    /// Returns the first lines of a row: the path and file name, then the upload, its route, owner and time.
    private func head(
        _ id: String,
        _ route: String,
        _ owner: String?,
        naming: UploadNaming? = nil,
        time: String? = nil
    ) -> String {
        let file = naming?.file.map { HTML.element("bdi", $0, class: "file") } ?? ""
        let name = naming.map { "<div>\(file)\(HTML.element("bdi", $0.path))</div>" } ?? ""
        return name + "<div>" + HTML.element("code", id) + HTML.element("b", route)
            + (owner.map { HTML.element("bdi", $0, class: "owner") } ?? "")
            + (time.map { HTML.element("time", $0) } ?? "") + "</div>"
    }

    private func head(_ route: Route) -> String {
        "<div>\(HTML.element("b", route.name))\(HTML.element("code", route.targetList))</div>"
    }

    /// Returns a row's line of facts.
    private func line(_ facts: [String?]) -> String {
        HTML.element("p", facts.compactMap(\.self).joined(separator: " · "))
    }

    private var receives: String {
        part("Now", transfers, ordinary: ordinary, none: "No uploads are being received.") {
            transfer in
            let facts = [
                Self.size(transfer.offset, of: transfer.length),
                "\(ByteSize.decimal(transfer.rate))/s",
                transfer.secondsLeft.map { "\(DurationText.rounded($0)) left" }, transfer.client,
                "\(transfer.connections, of: "connection")",
            ]
            let value = transfer.percent.map { " value=\"\($0)\"" } ?? ""
            let (id, naming) = ("\(transfer.id)", transfer.naming)
            return "<li>\(head(id, transfer.route, transfer.owner, naming: naming))"
                + "<progress max=\"100\"\(value) aria-label=\"Received of \(id)\"></progress>"
                + line(facts) + "</li>"
        }
    }

    private var fails: String {
        part("Failing", Part(failing, maximum: .max)) { failing in
            "<li class=\"failing\">" + head(failing.route) + HTML.element("p", failing.count)
                + reason(failing.run.reason) + "</li>"
        }
    }

    private var goesTo: String {
        part("Routes", Part(routes, maximum: .max)) { "<li>\(head($0))</li>" }
    }

    private var partialPart: String {
        guard partial.count > 0 else { return "" }
        let list = rows(partial) { upload in
            "<li>\(head("\(upload.id)", upload.route, upload.owner, naming: upload.naming))"
                + line([Self.size(upload.offset, of: upload.length), idle(upload)]) + "</li>"
        }
        return "<section><h2>Partial <span>\(partial.count)</span></h2>\(list)"
            + "<p>\(HTML.text(partialWords)): \(HTML.element("kbd", Self.listPartial))</p></section>\n"
    }

    private var waits: String {
        part("Waiting", waiting, none: "No uploads are waiting for delivery.") { upload in
            "<li>\(head("\(upload.id)", upload.route, upload.owner, naming: upload.naming))"
                + line([ByteSize.decimal(upload.size), upload.when(now)]) + reason(upload.reason)
                + "</li>"
        }
    }

    private var needsAttention: String {
        part("Needs attention", needy, none: "Nothing needs attention.") { inHold($0, "needy") }
    }

    private var isHeld: String { part("Held", held) { inHold($0, "held") } }

    private func inHold(_ upload: WaitingUpload, _ kind: String) -> String {
        let waited = upload.since.map { "complete for \(since($0))" }
        let facts = [upload.cause?.rawValue, ByteSize.decimal(upload.size), waited]
        let steps = upload.steps.map { step in
            "<p>\(HTML.text(step.when)): \(HTML.element("kbd", step.command))</p>"
        }
        return
            "<li class=\"\(kind)\">\(head("\(upload.id)", upload.route, upload.owner, naming: upload.naming))"
            + line(facts) + reason(upload.reason)
            + (upload.prompt.map { HTML.element("p", $0) } ?? "")
            + steps.joined() + "</li>"
    }

    private var recent: String {
        part("Last failures", Part(failures), none: "None since the daemon started.") { failure in
            "<li>\(head("\(failure.id)", failure.route, nil, time: "\(since(failure.time)) ago"))"
                + "\(reason(failure.reason))</li>"
        }
    }

    private func reason(_ text: String?) -> String {
        text.map { HTML.element("p", $0, class: "reason") } ?? ""
    }

    private var spacePart: String {
        var bars = ""
        if let quota = figures.quota, quota > 0 {
            let value = min(100, figures.bytes * 100 / quota)
            bars = "<progress max=\"100\" value=\"\(value)\" aria-label=\"Quota\"></progress>"
        }
        return "<section><h2>Space</h2>\(bars)\(line(space))</section>\n"
    }
}

enum StatusPage {
    static let style = """
        :root {
            color-scheme: light dark;
            --text: #1c2127; --quiet: #5b6570; --ground: #f4f5f7; --card: #fff; --line: #dde1e6;
            --ok: #1a7f4b; --warning: #9a6200; --critical: #b3261e; --bar: #2f6fde;
        }
        @media (prefers-color-scheme: dark) {
            :root {
                --text: #e4e8ec; --quiet: #9aa5b1; --ground: #14171b; --card: #1d2126; --line: #31373f;
                --ok: #5cc98f; --warning: #e5b454; --critical: #ff8a80; --bar: #6ea0ff;
            }
        }
        * { box-sizing: border-box; }
        body {
            margin: 0 auto; padding: 1rem; max-width: 84rem;
            font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--ground);
            overflow-wrap: anywhere;
        }
        header, section {
            background: var(--card); border: 1px solid var(--line); border-radius: 8px;
            padding: .75rem 1rem;
        }
        header { border-left: 6px solid var(--ok); margin-bottom: 1rem; }
        header.warning { border-left-color: var(--warning); }
        header.critical { border-left-color: var(--critical); }
        h1 { font-size: 1.15rem; margin: 0; }
        strong { color: var(--ok); margin-right: .35rem; }
        .warning strong { color: var(--warning); }
        .critical strong { color: var(--critical); }
        header ul { margin: .35rem 0 0; padding-left: 1.2rem; }
        main { columns: 34rem; column-gap: 1rem; }
        section { break-inside: avoid; margin-bottom: 1rem; }
        h2 { font-size: 1rem; margin: 0 0 .35rem; }
        h2 span { color: var(--quiet); font-weight: normal; margin-left: .25rem; }
        p { margin: .15rem 0; }
        .none, time, footer { color: var(--quiet); }
        .rows { list-style: none; margin: 0; padding: 0; }
        .rows li { padding: .5rem 0; border-top: 1px solid var(--line); }
        .rows li:first-child { border-top: 0; }
        .rows li:last-child { padding-bottom: 0; }
        .rows div { display: flex; flex-wrap: wrap; gap: .1rem .75rem; align-items: baseline; }
        code, kbd { font: 13px/1.5 ui-monospace, monospace; }
        kbd { background: var(--ground); border: 1px solid var(--line); border-radius: 4px; padding: 0 .4rem;
            user-select: all; -webkit-box-decoration-break: clone; box-decoration-break: clone; }
        .file { font-weight: bold; }
        #note { position: sticky; bottom: 0; margin: 0; padding: .35rem 1rem; text-align: center; background: var(--ground); }
        #note:empty { padding: 0; }
        .reason { color: var(--quiet); }
        .failing, .needy .reason, .failing .reason { color: var(--critical); }
        progress { width: 100%; height: .6rem; accent-color: var(--bar); }
        footer { clear: both; margin-top: 1rem; font-size: 13px; text-align: center; }

        """

    static let script = """
        'use strict'

        const pause = 5000
        const parts = ['header', 'main', 'footer']
        const note = document.getElementById('note')
        let isBusy = false

        function say(text) {
            if (note.textContent !== text) note.textContent = text
        }

        function isSelecting() {
            const selection = getSelection()
            return selection !== null && !selection.isCollapsed
        }

        async function refresh() {
            if (isBusy || document.hidden) return
            if (isSelecting()) return say('Not refreshed while text is selected.')
            isBusy = true
            try {
                const answer = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(10_000) })
                if (!answer.ok) throw new Error(`status ${answer.status}`)
                const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
                if (isSelecting()) return
                const level = document.querySelector('strong').textContent
                for (const name of parts) {
                    const [old, now] = [document, page].map(each => each.querySelector(name))
                    if (old.outerHTML !== now.outerHTML) old.replaceWith(document.importNode(now, true))
                }
                document.title = page.title
                const newer = document.querySelector('strong').textContent
                say(newer === level ? '' : `Now ${newer}`)
            } catch {
                say('The gateway does not respond. This page is out of date.')
                document.title = 'No response: spoolgate'
            } finally {
                isBusy = false
            }
        }

        setInterval(refresh, pause)
        document.addEventListener('visibilitychange', refresh)
        document.addEventListener('selectionchange', () => {
            if (note.textContent.startsWith('Not refreshed') && !isSelecting()) refresh()
        })

        """
}
