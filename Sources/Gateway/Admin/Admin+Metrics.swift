// The names of all metrics and the sources of their values; spoolgate-metrics(7) has a row for each.
//
// Invariant: labels have bounded sets of values, and never an owner, a path or an identity.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats

extension Admin {
    /// The metrics in the text format of Prometheus.
    var metricsText: String {
        var text = MetricsText(prefix: "spoolgate_")
        text.addProcess(self)
        text.addRequests(gateway)
        text.addUploads(gateway.metrics)
        text.addQueues(gateway)
        text.addDeliveries(gateway.metrics, routes)
        text.addSpool(self)
        text.addEvents(gateway.events)
        return text.text
    }
}

extension MetricsText {
    fileprivate mutating func addProcess(_ admin: Admin) {
        let metrics = admin.gateway.metrics
        gauge("build_info", "Version and build of the program; always 1.")
        let build = ProgramBuild.identity ?? "unknown"
        add(1, [("version", ProgramVersion.version), ("build", build)])
        gauge("start_time_seconds", "Start time of the daemon, in seconds since the Unix epoch.")
        add(metrics.start.seconds)
        gauge(
            "settings_last_reload_success",
            "Whether the last reload of the settings succeeded (1) or failed (0)."
        )
        add(1 - metrics.refusedReload.count)
        let load = admin.load()
        gauge("ready", "Whether the daemon is ready (1) or not (0), as reported by /ready.")
        add(admin.checks(load).allSatisfy(\.isGood) ? 1 : 0)
        gauge("threads_busy", "Requests being processed.")
        add(load.busy)
        gauge("threads_maximum", "Maximum number of concurrent requests (threads.maximum).")
        add(load.maximum)
    }

    fileprivate mutating func addRequests(_ gateway: Gateway) {
        let metrics = gateway.metrics
        counter("requests_total", "Completed requests.")
        for (route, counts) in metrics.routes {
            for (method, status, count) in counts.responded {
                let word = status == 0 ? "none" : "\(status)"
                add(count, [("route", route), ("method", method.label), ("status", word)])
            }
        }
        counter("refusals_total", "Requests refused by the gateway, by code.")
        add(metrics.refusals, "reason")
        counter("interim_total", "Interim responses sent.")
        for (status, count) in metrics.interimCounts { add(count, [("status", "\(status)")]) }
        counter(
            "front_faults_total",
            "Requests that reveal a fault in the web server's configuration."
        )
        let faults = gateway.faults.counts
        for fault in WebServerFault.allCases {
            add(faults[fault] ?? 0, [("fault", fault.rawValue)])
        }
    }

    fileprivate mutating func addUploads(_ metrics: Metrics) {
        counter("uploads_total", "Uploads, by outcome.")
        for (route, counts) in metrics.routes {
            for (outcome, dialect, count) in counts.outcomes {
                let labels = [
                    ("route", route), ("dialect", "\(dialect)"), ("outcome", "\(outcome)"),
                ]
                add(count, labels)
            }
        }
        counter("received_bytes_total", "Bytes of content received.")
        for (route, counts) in metrics.routes { add(counts.content.received, [("route", route)]) }
        counter(
            "spool_receive_bytes_total",
            "Bytes of content that nginx wrote to the spool directly (spool-receive)."
        )
        for (route, counts) in metrics.routes {
            add(counts.content.writtenByNginx, [("route", route)])
        }
        counter(
            "spool_receive_total",
            "Requests with more than 256 KiB of upload content, or of unknown length, by result."
        )
        for (route, counts) in metrics.routes {
            for (path, count) in counts.paths.all {
                add(count, [("route", route), ("result", path.label)])
            }
        }
        gauge("uploads_receiving", "Uploads being received.")
        add(metrics.receiving.count)
        counter("interruptions_total", "Interruptions of received content, by reason.")
        add(metrics.interruptions, "reason")
        counter("resumptions_total", "Uploads resumed after an interruption.")
        add(metrics.resumptions.count)
        histogram("upload_seconds", "Time from the creation of an upload to its completion.")
        for (route, counts) in metrics.routes { add(counts.uploadTimes, [("route", route)]) }
    }

    fileprivate mutating func addQueues(_ gateway: Gateway) {
        let queues = QueueFigures(of: gateway)
        gauge("uploads", "Uploads in the spool, by queue.")
        for (queue, cause, count) in queues.counts {
            add(count, [("queue", queue.rawValue), ("cause", cause?.rawValue ?? "")])
        }
        counter("queue_runs_total", "Queue runs.")
        add(gateway.metrics.queueRuns.count)
        gauge("queue_oldest_seconds", "Waiting time of the oldest complete upload.")
        for (key, age) in queues.oldest {
            add(age, [("queue", key.queue.rawValue), ("route", key.route)])
        }
    }

    fileprivate mutating func addDeliveries(_ metrics: Metrics, _ routes: [Route]) {
        counter("deliveries_total", "Delivery attempts, by result.")
        for (route, counts) in metrics.routes {
            for (result, count) in counts.results.all {
                add(count, [("route", route), ("result", result.rawValue)])
            }
        }
        gauge("route_failing", "Whether deliveries of a route are failing (1) or not (0).")
        for route in routes {
            add(route.counts.health.failing == nil ? 0 : 1, [("route", route.name)])
        }
        histogram("delivery_seconds", "Duration of delivery attempts.")
        for (route, counts) in metrics.routes { add(counts.deliveryTimes, [("route", route)]) }
        counter("delivered_bytes_total", "Bytes of uploads accepted by the upstream.")
        for (route, counts) in metrics.routes { add(counts.delivered.count, [("route", route)]) }
        histogram("authorizer_seconds", "Response time of the authorizer.")
        add(metrics.authorizerTimes, "result")
        histogram("inspect_seconds", "Duration of inspections.")
        add(metrics.inspectionTimes, "result")
    }

    fileprivate mutating func addSpool(_ admin: Admin) {
        let (metrics, spool) = (admin.gateway.metrics, admin.gateway.deliveries.spool)
        let (figures, sample) = (spool.figures, admin.sampler.sample)
        gauge("spool_bytes", "Bytes of content and records in the spool.")
        add(figures.bytes)
        gauge("spool_reserve_bytes", "Bytes that must stay free (spool.reserve).")
        add(figures.reserve)
        if let quota = figures.quota {
            gauge("spool_quota_bytes", "Maximum number of bytes in the spool (spool.quota).")
            add(quota)
        }
        let full = Set(spool.refusals(with: sample.space).compactMap(\.fullness))
        gauge("spool_full", "Whether uploads are refused with 507, by cause.")
        for cause in SpoolFullness.allCases {
            add(full.contains(cause) ? 1 : 0, [("cause", cause.rawValue)])
        }
        if let space = sample.space {
            gauge("spool_free_bytes", "Free bytes on the file system of the spool.")
            add(space.freeBytes)
            if let files = space.freeFiles {
                gauge("spool_free_files", "Free inodes on the file system of the spool.")
                add(files)
            }
        }
        counter("spool_errors_total", "Errors of the spool.")
        add(metrics.spoolErrors.total)
        gauge(
            "spool_unrecovered",
            "Uploads and directories that recovery could not read or repair."
        )
        add(metrics.unrecovered.count)
        histogram("sync_seconds", "Time to make data durable.")
        add(Disk.syncTimes)
        if let purge = sample.lastPurge {
            gauge(
                "purge_last_success_timestamp_seconds",
                "Time of the last purge of expired uploads, in seconds since the Unix epoch."
            )
            add(purge.seconds)
        }
    }

    fileprivate mutating func addEvents(_ events: Events) {
        gauge("events_pending", "Events waiting for the webhook.")
        add(max(0, events.pending))
        counter("events_lost_total", "Events lost because they could not be written.")
        add(events.lost)
    }

    private mutating func add(_ counters: Counters<String>, _ label: String) {
        for (key, counter) in counters.all { add(counter.count, [(label, key)]) }
    }

    private mutating func add(_ histograms: Histograms<String>, _ label: String) {
        for (key, histogram) in histograms.all { add(histogram, [(label, key)]) }
    }

    private mutating func add(_ histogram: Histogram, _ labels: Labels = []) {
        add(bounds: histogram.bounds, histogram.cumulated, sum: histogram.seconds, labels)
    }
}

/// The number of uploads in each queue, and the waiting time of the oldest.
struct QueueFigures {
    struct Place: Hashable {
        var queue: Queue
        var route: String
    }

    /// The uploads in `hold` are counted by cause.
    private(set) var counts: [(queue: Queue, cause: HoldCause?, count: Int)] = []
    private(set) var incoming = 0
    /// The waiting time of the oldest upload in each place, in seconds.
    private(set) var oldest: [Place: Int64] = [:]

    init(of gateway: Gateway) {
        let spool = gateway.deliveries.spool
        let (waiting, others) = gateway.metrics.waiting.all
        let (figures, now) = (spool.figures, spool.clock.now)
        let active = gateway.metrics.delivering.count
        var held: [HoldCause: Int] = [:]
        for upload in waiting {
            if let cause = upload.cause { held[cause, default: 0] += 1 }
            guard let since = upload.since else { continue }
            let place = Place(queue: upload.cause == nil ? .deferred : .hold, route: upload.route)
            oldest[place] = max(oldest[place] ?? 0, now.seconds - since.seconds)
        }
        let inHold = held.values.reduce(0, +)
        let deferred = waiting.count - inHold + others
        incoming = max(0, figures.unfinished - deferred - inHold - active)
        counts = [(.incoming, nil, incoming), (.active, nil, active), (.deferred, nil, deferred)]
        counts += HoldCause.allCases.map { (.hold, $0, held[$0] ?? 0) }
        counts += [
            (.delivered, nil, max(0, figures.uploads - figures.unfinished)),
            (.corrupt, nil, gateway.metrics.waiting.corrupt),
        ]
    }
}
