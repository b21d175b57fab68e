// Metrics in the text format of Prometheus.

import SpoolgateTextFormats
import Testing

@Suite("Metrics as text")
struct MetricsTextTests {
    @Test("a metric has its help and type, then its samples")
    func counter() {
        var text = MetricsText(prefix: "house_")
        text.counter("doors_total", "Doors that were opened.")
        text.add(3, [("room", "kitchen"), ("side", "left")])
        text.add(4)
        #expect(
            text.text == """
                # HELP house_doors_total Doors that were opened.
                # TYPE house_doors_total counter
                house_doors_total{room="kitchen",side="left"} 3
                house_doors_total 4

                """
        )
    }

    @Test("no label's text ends its value, its line or its name")
    func escaping() {
        var text = MetricsText(prefix: "")
        text.gauge("a", "b")
        text.add(1, [("route", "\"} 9\nb 2\\")])
        #expect(text.text.split(separator: "\n").count == 3)
        #expect(text.text.hasSuffix("a{route=\"\\\"} 9\\nb 2\\\\\"} 1\n"))
    }

    @Test("a histogram has its buckets, the last one with all, then sum and count")
    func histogram() {
        var text = MetricsText(prefix: "")
        text.histogram("took_seconds", "How long it took.")
        text.add(bounds: [0.5, 5], [1, 3, 4], sum: 11.25, [("route", "a")])
        #expect(
            text.text.split(separator: "\n").dropFirst(2) == [
                "took_seconds_bucket{route=\"a\",le=\"0.5\"} 1",
                "took_seconds_bucket{route=\"a\",le=\"5\"} 3",
                "took_seconds_bucket{route=\"a\",le=\"+Inf\"} 4",
                "took_seconds_sum{route=\"a\"} 11.25", "took_seconds_count{route=\"a\"} 4",
            ]
        )
    }
}
