// Resumable uploads of files from a browser (draft-ietf-httpbis-resumable-upload).
//
//     const upload = new ResumableUpload(file, { endpoint: '/files/' })
//     upload.addEventListener('progress', ({ detail }) => show(detail.loaded / detail.total))
//     const answer = await upload.start()
//
// One module without dependencies. README.md beside it has the whole interface, resumable-upload.d.ts its types.
// It needs a browser of March 2024 or later. Requests are XMLHttpRequests, because fetch does not report the
// progress of an upload. No interop version is named unless the options say so: scripts cannot see a 104.

/**
 * @typedef {import('./resumable-upload.js').UploadState} UploadState
 * @typedef {import('./resumable-upload.js').UploadErrorCode} UploadErrorCode
 * @typedef {import('./resumable-upload.js').UploadRequest} UploadRequest
 * @typedef {import('./resumable-upload.js').Pending} Pending
 * @typedef {import('./resumable-upload.js').Totals} Totals
 * @typedef {import('./resumable-upload.js').UploadOptions} UploadOptions
 * @typedef {import('./resumable-upload.js').TerminateOptions} TerminateOptions
 * @typedef {typeof DEFAULTS & UploadOptions} Settings
 * @typedef {Pick<Settings, keyof TerminateOptions | 'stallTimeout'>} RequestSettings
 *
 * @typedef {object} Order a request, and what the caller wants to know of it
 * @property {string} method
 * @property {string} url
 * @property {Record<string, string>} [fields] the protocol's
 * @property {Record<string, string | undefined>} [own] a creation's fields of the content; the options' win
 * @property {Blob} [body]
 * @property {(loaded: number) => void} [onsent] bytes of the body that have left
 * @property {() => boolean} [isReported] whether the server reports what has arrived
 * @property {(proceeds: () => void) => void} [onwatch] receives what reports progress
 * @property {() => Promise<void>} [inspect] rejects if the body can no longer be read
 * @property {AbortSignal} [begins] prevents the request until it is sent
 */

const PREFIX = 'resumable-upload:'
const PARTIAL = 'application/partial-upload'
const POLL_FIRST = 500
const POLL = 2000
const LOCK_PATIENCE = 3000
/** How long a creation's answer is awaited after a pause, in ms; another window waits longer for its lock. */
const CREATION_PATIENCE = 2500
/** ms between two progress events. */
const PROGRESS = 100
/** Bytes that are compared at each of three places of the file; a file of at most three times this is read whole. */
const SAMPLE = 65536
/** The longest pause that a server can ask for, in ms. */
const LONGEST_PAUSE = 3600000
/** Events of an upload that its queue passes on. */
const PARTS = ['progress', 'state']
const ACTIVE = ['queued', 'running', 'waiting']

/** Fields about the content go with the creation alone: appends have a content of their own. */
const CREATION_ONLY = /^(content-|repr-digest$|want-|idempotency-key$|prefer$)/i

/**
 * Sentences for people.
 * @type {Record<number, string>}
 */
const WORDS = {
    401: 'You are not signed in.',
    403: 'You are not allowed to upload here.',
    404: 'This address does not accept uploads.',
    413: 'The file is too large for this server.',
    415: 'This server does not accept files of this type.',
    507: 'The server has no space for the file.',
}
const CHANGED = 'The file has changed since the upload began.'
const BUSY = 'The server is busy or unavailable.'
const REFUSED = 'The server did not accept the file.'
const BROKEN = 'The connection was lost.'
const UNREADABLE = 'The file can no longer be read: it was changed, moved or removed.'

/**
 * Older compilers do not know its methods.
 * @type {any}
 */
const Signal = AbortSignal

const DEFAULTS = {
    method: 'POST',
    /** @type {NonNullable<UploadOptions['headers']>} */
    headers: {},
    withCredentials: false,
    chunkSize: Infinity,
    /** @type {readonly number[]} */
    retryDelays: [0, 1000, 3000, 5000, 10000, 20000, 45000],
    stallTimeout: 60000,
}

/** Why an upload stopped, in words for people, and in a `code` for programs. */
export class UploadError extends Error {
    /**
     * @param {string} message
     * @param {{code: UploadErrorCode, answer?: Answer, cause?: unknown, retryable?: boolean}} details
     */
    constructor(message, { code, answer, cause, retryable = false }) {
        super(message, { cause: /** @type {Error} */ (cause) })
        this.name = 'UploadError'
        /** @type {UploadErrorCode} */
        this.code = code
        /**
         * The server's answer, if there was one.
         * @type {Answer | undefined}
         */
        this.answer = answer
        /** Whether another attempt may succeed with nothing changed. */
        this.retryable = retryable
    }
}

/** What a server answered. */
export class Answer {
    /** @param {XMLHttpRequest} xhr one that is done @param {string} url of the request */
    constructor(xhr, url) {
        this.status = xhr.status
        this.text = xhr.responseText
        /** Where it came from, after redirects. */
        this.url = xhr.responseURL || url
        this.redirected = this.url !== url.split('#')[0]
        /** From another origin, only those that the server exposes. */
        this.headers = new Headers()
        for (const line of xhr.getAllResponseHeaders().trim().split(/\r?\n/)) {
            const colon = line.indexOf(':')
            try {
                this.headers.append(line.slice(0, colon), line.slice(colon + 1).trim())
            } catch {
                // A name that Headers does not take.
            }
        }
    }

    get ok() { return this.status >= 200 && this.status < 300 }

    /** @returns {any} */
    json() { return JSON.parse(this.text) }

    /**
     * A sentence for people: of a problem document (RFC 9457) or other JSON, or of a short plain text.
     * @returns {string | undefined}
     */
    get reason() {
        const type = this.headers.get('content-type') ?? ''
        if (/[/+]json\b/i.test(type)) {
            const { detail, title, message, error } = parsed(this.text) ?? {}
            return [detail, title, message, error].find((text) => typeof text === 'string' && text)
        }
        const text = this.text.trim()
        return /^text\/plain\b/i.test(type) && text && text.length < 500 ? text : undefined
    }

    /**
     * true: the application's own answer; false: the upload protocol's; undefined: it does not say.
     * @returns {boolean | undefined}
     */
    get complete() {
        const value = this.headers.get('upload-complete')?.split(';')[0].trim()
        return value === '?1' ? true : value === '?0' ? false : undefined
    }

    /**
     * ms that the server asks to wait.
     * @returns {number | undefined}
     */
    get retryAfter() {
        const value = this.headers.get('retry-after')
        if (!value) return undefined
        const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now()
        return ms > 0 ? ms : undefined
    }

    /**
     * An Integer field (RFC 9651) of 0 or above.
     * @param {string} name
     */
    integer(name) {
        const value = this.headers.get(name)?.split(';')[0].trim() ?? ''
        return /^\d{1,15}$/.test(value) ? Number(value) : undefined
    }

    /**
     * A member of Upload-Limit.
     * @param {string} key
     */
    limit(key) {
        const limits = this.headers.get('upload-limit') ?? ''
        const value = new RegExp(`(?:^|,)\\s*${key}=(\\d{1,15})`).exec(limits)?.[1]
        return value === undefined ? undefined : Number(value)
    }

    /**
     * The target of a Link with this relation, absolute.
     * @param {string} relation
     */
    link(relation) {
        const links = this.headers.get('link') ?? ''
        for (const [, target, parameters] of links.matchAll(/<([^>]*)>((?:\s*;[^,;"]*(?:"[^"]*")?)*)/g)) {
            const relations = /;\s*rel\s*=\s*"?([^";]*)/i.exec(parameters)?.[1] ?? ''
            if (relations.toLowerCase().split(/\s+/).includes(relation)) return new URL(target, this.url).href
        }
        return undefined
    }
}

/** The speed of a count that grows, over the last ten seconds. */
class Pace {
    /** @type {{now: number, count: number}[]} */
    #samples = []

    /** @param {number} count */
    add(count) {
        const now = performance.now()
        const last = this.#samples.at(-1)
        if (last && (count <= last.count || now - last.now < 200)) return
        this.#samples.push({ now, count })
        while (now - this.#samples[0].now > 10000) this.#samples.shift()
    }

    reset() { this.#samples = [] }

    /** Bytes a second; undefined until it is known, and if nothing has moved for some seconds. */
    get rate() {
        const first = this.#samples[0]
        const last = this.#samples.at(-1)
        if (!first || !last || last.now - first.now < 1000 || performance.now() - last.now > 5000) return undefined
        return (last.count - first.count) / (last.now - first.now) * 1000
    }
}

/** One file on its way to a server. */
export class ResumableUpload extends EventTarget {
    /** @type {((event: CustomEvent) => void) | null} */ onprogress = null
    /** @type {((event: CustomEvent) => void) | null} */ onstate = null
    /** @type {((event: CustomEvent) => void) | null} */ oncreated = null
    /** @type {UploadState} */
    state = 'idle'

    /**
     * The server's upload resource, once there is one.
     * @type {string | undefined}
     */
    url
    /** @type {Settings} */
    #options
    #endpoint
    #name
    /** Where the file is below the folder that was chosen or dropped; empty: in none. */
    #path
    /**
     * What it is remembered by, without the path and the content: version 0.1.0 remembered no more.
     * @type {string | undefined}
     */
    #plain
    /**
     * What it is remembered by, once `identify()` or `start()` has read the file; undefined: it is not.
     * @type {string | undefined}
     */
    fingerprint
    /** @type {Storage | null} */
    #storage
    #isStored = true
    /**
     * The resource that reports how much has arrived.
     * @type {string | undefined}
     */
    #status
    /** The most bytes that the server takes in one request. */
    #limit = Infinity
    /** The fewest that it takes in one which is not the last. */
    #least = 0
    /** How long the server keeps a partial upload, in ms. */
    #lifetime = Infinity
    /** Bytes that the server said it has. */
    #received = 0
    /** Bytes that the browser says have left, those before them included. */
    #sent = 0
    /** Whether the status resource has answered. */
    #isWatched = false
    /** Reports that the running request proceeds. */
    #proceeds = () => {}
    #pace = new Pace()
    /**
     * A digest of bytes of the file, to find out whether it was replaced.
     * @type {string | undefined}
     */
    #sample
    /** When the last progress event was, and the timer of the next one. */
    #told = -Infinity
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #timer
    #controller = new AbortController()
    /** Ends the wait for the next attempt. */
    #waiting = new AbortController()
    /** @type {UploadQueue | undefined} */
    #queue
    /** @type {Promise<Answer> | undefined} */
    #promise

    /** @param {Blob} file @param {UploadOptions} options */
    constructor(file, options) {
        super()
        if (!(file instanceof Blob)) throw new TypeError('file must be a File or Blob.')
        check(options, OPTIONS)
        for (const type of [...PARTS, 'created']) handle(this, type)
        this.#options = { ...DEFAULTS, ...given(options) }
        this.#storage = options.storage === undefined ? defaultStorage() : options.storage
        this.file = file
        const { name, lastModified, webkitRelativePath } = /** @type {File} */ (file)
        this.#name = options.metadata?.name ?? name
        this.#path = options.path ?? webkitRelativePath ?? ''
        this.#endpoint = absolute(options.endpoint)
        // A Blob without a name is not remembered.
        this.#plain = options.fingerprint ?? (name === undefined ? undefined
            : [name, file.type, file.size, lastModified, this.#endpoint].join('|'))
        if (options.url) {
            this.url = absolute(options.url)
            this.#status = besideStatus(this.url)
        }
    }

    /** Bytes that the server has; bytes that were sent, if it reports that to the next attempt alone. */
    get loaded() { return this.#status ? this.#received : Math.max(this.#received, this.#sent) }

    /** Bytes a second; undefined while it is not known or nothing moves. */
    get speed() { return this.state === 'running' ? this.#pace.rate : undefined }

    /** Seconds until everything is sent; undefined as `speed`. */
    get remaining() {
        const { speed } = this
        return speed ? (this.file.size - this.loaded) / speed : undefined
    }

    /** Whether the upload goes on after a reload, when the same file is chosen again. */
    get isRemembered() { return this.#plain !== undefined && this.#storage !== null && this.#isStored }

    /**
     * Reads samples of the file, and finds an upload of it that was begun before.
     * @returns {Promise<string | undefined>} what it is remembered by; rejects with UploadError if it cannot be read
     */
    async identify() {
        await this.#inspect()
        if (this.fingerprint === undefined && this.#plain !== undefined) {
            this.fingerprint = this.#options.fingerprint ?? [this.#plain, this.#path, this.#sample].join('|')
            if (!this.url) this.#recall()
        }
        return this.fingerprint
    }

    /**
     * Uploads that were begun in this browser and are not finished. Their files are not kept: they must be
     * chosen again.
     * @param {Storage | null} [storage]
     * @returns {Pending[]}
     */
    static pending(storage = defaultStorage()) {
        if (!storage) return []
        return Object.keys(storage).filter((key) => key.startsWith(PREFIX)).flatMap((key) => {
            const entry = remembered(storage.getItem(key))
            if (entry) return [{ ...entry, fingerprint: key.slice(PREFIX.length), lock: key }]
            storage.removeItem(key)
            return []
        }).sort((one, other) => one.time - other.time)
    }

    /**
     * Forgets one of them. The server keeps its part until it expires.
     * @param {string} fingerprint
     * @param {Storage | null} [storage]
     */
    static forget(fingerprint, storage = defaultStorage()) { storage?.removeItem(PREFIX + fingerprint) }

    /**
     * Removes an upload from its server.
     * @param {string | URL} url
     * @param {TerminateOptions} [options]
     * @returns {Promise<void>} rejects with UploadError; an upload that is gone already is a success
     */
    static async terminate(url, options = {}) {
        check(options, TERMINATE)
        const settings = { ...DEFAULTS, ...given(options) }
        const signal = options.signal ?? new AbortController().signal
        const answer = await send(settings, { method: 'DELETE', url: absolute(url) }, signal)
        if (!answer.ok && ![404, 410].includes(answer.status)) throw failure(answer)
    }

    /**
     * Sends the file from the offset that the server has, in as many attempts as it takes.
     * @param {UploadQueue} [queue] whose turn it waits for; by default the one of the start before
     * @returns {Promise<Answer>} the application's answer; rejects with UploadError, also after `pause()` and
     *     `cancel()` and if that answer is no success, and with the reason of an aborted `signal`; a creation that
     *     was sent is awaited first, for at most 2.5 seconds
     */
    start(queue = this.#queue) {
        if (this.#promise && [...ACTIVE, 'done'].includes(this.state)) return this.#promise
        const before = this.#promise
        const controller = this.#controller = new AbortController()
        const { signal } = this.#options
        if (signal?.aborted) return Promise.reject(signal.reason)
        const stop = () => this.#stop('paused', signal?.reason)
        signal?.addEventListener('abort', stop, { once: true })
        this.#queue = queue
        this.#set(queue ? 'queued' : 'running')
        return this.#promise = this.#run(before, queue, controller.signal)
            .finally(() => signal?.removeEventListener('abort', stop))
    }

    /** Stops sending. The server keeps its part, and `start()` goes on. */
    pause() { this.#stop('paused', new UploadError('Paused.', { code: 'paused' })) }

    /** Begins the next attempt at once, if it waits for that. */
    retryNow() { this.#waiting.abort() }

    /**
     * Stops for good, and removes the server's part.
     * @returns {Promise<void>} never rejects
     */
    async cancel() {
        if (this.state === 'done' || this.state === 'cancelled') return
        this.#stop('cancelled', new UploadError('Cancelled.', { code: 'cancelled' }))
        // One that was never started may have been begun before a reload.
        if (!this.#promise) await this.identify().catch(() => {})
        this.#forgetStored()
        // A creation that is answered meanwhile leaves its URL.
        await this.#promise?.catch(() => {})
        const { url } = this
        this.#forget()
        if (!url) return
        // Not while another window sends to it.
        const signal = Signal.timeout(30000)
        const order = { method: 'DELETE', url }
        await this.#exclusively(signal, () => send(this.#options, order, signal)).catch(() => {})
    }

    /** @param {'paused' | 'cancelled'} state @param {unknown} reason */
    #stop(state, reason) {
        if (state === 'paused' && !ACTIVE.includes(this.state)) return
        // Nobody need wait for an upload that a person stops.
        this.#promise?.catch(() => {})
        this.#set(state)
        this.#controller.abort(reason)
    }

    /**
     * @param {Promise<Answer> | undefined} before
     * @param {UploadQueue | undefined} queue
     * @param {AbortSignal} signal
     */
    async #run(before, queue, signal) {
        let leave
        try {
            await before?.catch(() => {})
            signal.throwIfAborted()
            leave = await queue?.turn(signal)
            if (this.state === 'queued') this.#set('running')
            await this.identify()
            signal.throwIfAborted()
            return await this.#exclusively(signal, () => this.#persist(signal))
        } catch (error) {
            if (signal.aborted) throw signal.reason
            this.#set('failed', { error })
            throw error
        } finally {
            leave?.()
        }
    }

    /**
     * Of several windows with the same file one sends.
     * @template Result
     * @param {AbortSignal} signal
     * @param {() => Promise<Result>} body
     * @returns {Promise<Result>}
     */
    async #exclusively(signal, body) {
        // There are no locks if the page came without TLS.
        if (!navigator.locks || this.fingerprint === undefined) return body()
        // A page that is being reloaded returns its locks a moment later.
        const patience = Signal.any([signal, Signal.timeout(LOCK_PATIENCE)])
        let isLocked = false
        try {
            return await navigator.locks.request(PREFIX + this.fingerprint, { signal: patience }, () => {
                isLocked = true
                return body()
            })
        } catch (error) {
            if (isLocked || signal.aborted) throw error
            // A browser that stores nothing for this page has no locks for it either.
            if (!patience.aborted) return body()
            throw new UploadError('This file is being uploaded in another window.', { code: 'locked' })
        }
    }

    /**
     * Retries until there is a final response, or an error that another attempt cannot fix.
     * @param {AbortSignal} signal
     * @returns {Promise<Answer>}
     */
    async #persist(signal) {
        const { retryDelays, headers } = this.#options
        // Another window may have begun it meanwhile.
        if (!this.url) this.#recall()
        this.#discardOther()
        let attempt = 0
        let before = this.#received
        let isRenewed = false
        for (;;) {
            try {
                const answer = await this.#attempt(signal)
                this.#forget()
                if (!answer.ok) throw refusal(answer)
                this.#progress(this.file.size)
                this.#set('done', { answer })
                return answer
            } catch (caught) {
                signal.throwIfAborted()
                const error = await this.#explained(caught, attempt)
                signal.throwIfAborted()
                if (this.#received > before) {
                    attempt = 0
                    isRenewed = false
                }
                before = this.#received
                // A token that has expired: the function is asked for another one, once.
                if (error.code === 'server' && error.answer?.status === 401 && typeof headers === 'function'
                    && !isRenewed) {
                    isRenewed = true
                    continue
                }
                if (!this.#mayRetry(error, attempt)) throw error
                const backoff = retryDelays[Math.min(attempt, retryDelays.length - 1)]
                const asked = Math.min(error.answer?.retryAfter ?? 0, LONGEST_PAUSE)
                const delay = Math.max(backoff * (1 + Math.random()) / 1.5, asked)
                attempt += 1
                this.#waiting = new AbortController()
                this.#set('waiting', { error, delay, attempt, offline: !navigator.onLine })
                const either = Signal.any([signal, this.#waiting.signal])
                if (await sleep(delay, either, ['online', 'pageshow'])) attempt = 0
                signal.throwIfAborted()
                this.#set('running')
            }
        }
    }

    /** @param {UploadError} error @param {number} attempt */
    #mayRetry(error, attempt) {
        if (['refused', 'changed', 'unreadable'].includes(error.code)) return false
        return this.#options.shouldRetry?.(error, attempt) ?? error.retryable
    }

    /**
     * One attempt: asks how much the server has, or creates the upload, and sends what is missing.
     * @param {AbortSignal} signal
     * @returns {Promise<Answer>}
     */
    async #attempt(signal) {
        await this.#inspect()
        let offset = (this.url ? await this.#ask(signal) : undefined) ?? await this.#create(signal)
        signal.throwIfAborted()
        const isOver = new AbortController()
        this.#watch(Signal.any([signal, isOver.signal]))
        try {
            for (;;) {
                this.#sent = offset
                this.#reached(offset)
                const size = Math.max(Math.min(this.#options.chunkSize, this.#limit), this.#least)
                const end = Math.min(this.file.size, offset + size)
                /** @type {Answer} */
                const answer = await this.#append(offset, end, signal)
                const isLast = end === this.file.size
                // A redirect was the application's: the protocol has none.
                if (answer.complete ?? (isLast && (answer.ok || answer.redirected))) return answer
                const limit = answer.limit('max-append-size') ?? 0
                if (answer.status === 413 && limit > 0 && limit < end - offset) {
                    this.#limit = limit
                    offset = answer.integer('upload-offset') ?? offset
                } else if (!answer.ok) {
                    // If the upload is gone, the next attempt learns that and creates another one.
                    throw failure(answer, { retryable: [404, 410].includes(answer.status) || undefined })
                } else if (isLast) {
                    // Received, and its answer is yet to come: the next attempt asks for it.
                    throw failure(answer, { words: 'The server has not responded yet.', retryable: true })
                } else {
                    const next = answer.integer('upload-offset') ?? end
                    // The next attempt comes later, or a server that takes nothing would be asked without end.
                    if (next <= offset) throw failure(answer, { words: BUSY, retryable: true })
                    offset = next
                }
            }
        } finally {
            isOver.abort()
        }
    }

    /**
     * How much the server has; undefined: the upload is gone.
     * @param {AbortSignal} signal
     */
    async #ask(signal) {
        const answer = await send(this.#options, { method: 'HEAD', url: this.url ?? '' }, signal)
        if ([403, 404, 410].includes(answer.status)) {
            this.#forget()
            return undefined
        }
        if (!answer.ok) throw failure(answer)
        const offset = answer.integer('upload-offset')
        if (offset === undefined) {
            throw new UploadError(REFUSED, { code: 'server', answer })
        }
        const length = answer.integer('upload-length') ?? this.file.size
        if (length !== this.file.size || offset > length) throw new UploadError(CHANGED, { code: 'changed', answer })
        this.#learn(answer)
        return offset
    }

    /** @param {AbortSignal} signal */
    async #create(signal) {
        // Its answer names the upload that a later start continues, or a cancellation removes.
        const patient = new AbortController()
        /** @type {ReturnType<typeof setTimeout> | undefined} */
        let timer
        const stop = () => { timer = setTimeout(() => patient.abort(signal.reason), CREATION_PATIENCE) }
        signal.addEventListener('abort', stop, { once: true })
        const { file } = this
        const { method, metadata } = this.#options
        const answer = await send(this.#options, {
            method,
            url: this.#endpoint,
            fields: { 'Upload-Complete': '?0', 'Upload-Length': String(file.size) },
            own: { 'Content-Type': metadata?.type ?? file.type, 'Content-Disposition': disposition(this.#name) },
            begins: signal,
        }, patient.signal).finally(() => {
            clearTimeout(timer)
            signal.removeEventListener('abort', stop)
        })
        if (!answer.ok) throw failure(answer)
        const location = answer.headers.get('location')
        if (!location || answer.complete) {
            throw new UploadError(WORDS[404], { code: 'server', answer })
        }
        this.url = new URL(location, answer.url).href
        this.#status = answer.link('status') ?? besideStatus(this.url)
        this.#learn(answer)
        if (this.state !== 'cancelled') {
            this.#store()
            this.#tell('created', { url: this.url })
        }
        return 0
    }

    /** @param {number} offset @param {number} end @param {AbortSignal} signal */
    #append(offset, end, signal) {
        return send(this.#options, {
            method: 'PATCH',
            url: this.url ?? '',
            fields: {
                'Content-Type': PARTIAL,
                'Upload-Offset': String(offset),
                'Upload-Complete': end === this.file.size ? '?1' : '?0',
            },
            body: this.file.slice(offset, end),
            onsent: (loaded) => {
                this.#sent = offset + loaded
                this.#progress()
            },
            isReported: () => this.#isWatched,
            onwatch: (proceeds) => { this.#proceeds = proceeds },
            inspect: () => this.#inspect(),
        }, signal)
    }

    /** @param {Answer} answer */
    #learn(answer) {
        this.#limit = answer.limit('max-append-size') || Infinity
        this.#least = answer.limit('min-append-size') ?? 0
        this.#lifetime = (answer.limit('max-age') ?? Infinity) * 1000
    }

    /**
     * Asks the status resource, which disturbs nothing, how much has arrived. A browser's own progress runs ahead
     * by the bytes that its machine and the network have buffered.
     * @param {AbortSignal} signal
     */
    async #watch(signal) {
        const credentials = this.#options.withCredentials ? 'include' : 'same-origin'
        for (let delay = POLL_FIRST; this.#status; delay = POLL) {
            await sleep(delay, signal)
            if (signal.aborted) return
            try {
                const { url, headers } = await prepared(this.#options, { method: 'GET', url: this.#status })
                const response = await fetch(url, { headers, credentials, signal, cache: 'no-store' })
                if (response.status >= 500 || response.status === 429) continue
                const { offset } = response.ok ? await response.json().catch(() => ({})) : /** @type {any} */ ({})
                if (signal.aborted) return
                if (!Number.isSafeInteger(offset) || offset < 0) {
                    // An upload that failed has no status any more, and its PATCH says why.
                    if (!this.#isWatched) this.#status = undefined
                    return
                }
                this.#isWatched = true
                // All there: the application works on it, for as long as it likes.
                if (offset > this.#received || offset === this.file.size) this.#proceeds()
                this.#reached(Math.min(offset, this.file.size))
            } catch {
                // No network, or none that scripts may use: the upload's own request decides.
                if (!this.#isWatched) return
            }
        }
    }

    /** Rejects if the file has changed since it was first looked at, or cannot be read. */
    async #inspect() {
        for (let attempt = 0; ; attempt += 1) {
            // A page that was left reads nothing until it is shown again.
            await shown
            try {
                const sample = await sampled(this.file)
                this.#sample ??= sample
                if (sample === this.#sample) return
                throw new UploadError(CHANGED, { code: 'changed' })
            } catch (cause) {
                if (cause instanceof UploadError) throw cause
                if (attempt === 2) throw new UploadError(UNREADABLE, { code: 'unreadable', cause })
                await sleep(500)
            }
        }
    }

    /**
     * The cause of an error of which the browser tells too little.
     * @param {unknown} error
     * @param {number} attempt
     * @returns {Promise<UploadError>}
     */
    async #explained(error, attempt) {
        if (!(error instanceof UploadError)) {
            return new UploadError(String(/** @type {any} */ (error)?.message ?? error), { code: 'server', cause: error })
        }
        if (error.code !== 'network' && error.code !== 'stalled') return error
        try {
            await this.#inspect()
        } catch (cause) {
            return /** @type {UploadError} */ (cause)
        }
        const { origin } = new URL(this.#endpoint)
        if (error.code === 'stalled' || attempt === 0 || this.url || origin === location.origin) return error
        // A server that is there and never lets a creation through does not let this page's origin in.
        const isThere = await fetch(this.#endpoint, {
            mode: 'no-cors', method: 'HEAD', cache: 'no-store', credentials: 'omit',
        }).then(() => true, () => false)
        if (!isThere) return error
        return new UploadError(`${origin} does not accept uploads from this page.`, { code: 'origin', cause: error })
    }

    /** @param {number} offset */
    #reached(offset) {
        const isNew = offset !== this.#received
        this.#progress(offset)
        if (isNew) this.#store()
    }

    #progress(received = this.#received) {
        this.#received = received
        this.#sent = Math.max(this.#sent, received)
        this.#pace.add(this.loaded)
        const pause = this.#told + PROGRESS - performance.now()
        if (pause <= 0) this.#tellProgress()
        else this.#timer ??= setTimeout(() => this.#tellProgress(), pause)
    }

    #tellProgress() {
        clearTimeout(this.#timer)
        this.#timer = undefined
        this.#told = performance.now()
        this.#tell('progress', { loaded: this.loaded, sent: this.#sent, total: this.file.size })
    }

    /** @param {UploadState} state */
    #set(state, detail = {}) {
        if (this.#timer !== undefined) this.#tellProgress()
        this.#pace.reset()
        this.state = state
        this.#tell('state', { state, ...detail })
    }

    /** @param {string} type @param {object} detail */
    #tell(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })) }

    /** Finds an upload of this file that was begun before. */
    #recall() {
        const entry = this.#entry(this.fingerprint)
        if (!entry || entry.sample !== this.#sample || entry.size !== this.file.size) return
        this.url = entry.url
        this.#status = entry.status ?? besideStatus(entry.url)
        this.#received = entry.loaded
    }

    /**
     * Removes stored uploads that nothing can continue: their content is, or may be, another file's. Version 0.1.0
     * stored no sample.
     */
    #discardOther() {
        for (const key of new Set([this.fingerprint, this.#plain])) {
            const entry = this.#entry(key)
            if (!entry || entry.sample === this.#sample || entry.url === this.url) continue
            ResumableUpload.forget(/** @type {string} */ (key), this.#storage)
            // If this fails, the server removes it when it has expired.
            send(this.#options, { method: 'DELETE', url: entry.url }, Signal.timeout(30000)).catch(() => {})
        }
    }

    /** @param {string | undefined} key */
    #entry(key) {
        if (key === undefined) return undefined
        try {
            return remembered(this.#storage?.getItem(PREFIX + key))
        } catch {
            this.#isStored = false
            return undefined
        }
    }

    #store() {
        if (this.fingerprint === undefined || !this.url) return
        const time = Date.now()
        const entry = {
            url: this.url,
            status: this.#status,
            endpoint: this.#endpoint,
            name: this.#name ?? '',
            path: this.#path,
            sample: this.#sample,
            size: this.file.size,
            loaded: this.#received,
            time,
            expires: Number.isFinite(this.#lifetime) ? time + this.#lifetime : undefined,
        }
        try {
            this.#storage?.setItem(PREFIX + this.fingerprint, JSON.stringify(entry))
            this.#isStored = true
        } catch {
            // Full, or forbidden: this upload resumes in this page alone.
            this.#isStored = false
        }
    }

    #forget() {
        this.url = undefined
        this.#received = 0
        this.#isWatched = false
        this.#forgetStored()
    }

    #forgetStored() {
        if (this.fingerprint === undefined) return
        try {
            ResumableUpload.forget(this.fingerprint, this.#storage)
        } catch {
            // Forbidden: it was never stored.
        }
    }
}

/**
 * Starts uploads in the order in which they are added, so many at a time, and adds up their progress. Three, each
 * with the request for its status, are as many connections as a browser opens to one server over HTTP/1.1.
 */
export class UploadQueue extends EventTarget {
    /** @type {((event: CustomEvent) => void) | null} */ onprogress = null
    /** @type {((event: CustomEvent) => void) | null} */ onstate = null
    #free
    /** @type {((value?: unknown) => void)[]} */
    #waiting = []
    /** @type {Set<ResumableUpload>} */
    #uploads = new Set()
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #timer

    constructor(concurrency = 3) {
        super()
        if (!isCount(concurrency)) throw new RangeError('concurrency must be 1 or more.')
        this.#free = concurrency
        for (const type of PARTS) handle(this, type)
    }

    /** The uploads that were added and neither cancelled nor removed, in order. */
    get uploads() { return [...this.#uploads] }

    /** @returns {Totals} */
    get totals() {
        const sums = { count: this.#uploads.size, total: 0, loaded: 0, done: 0, failed: 0, paused: 0, active: 0 }
        let missing = 0
        /** @type {number | undefined} */
        let speed
        for (const upload of this.#uploads) {
            const { state, file: { size } } = upload
            const loaded = state === 'done' ? size : upload.loaded
            sums.total += size
            sums.loaded += loaded
            if (upload.speed) speed = (speed ?? 0) + upload.speed
            if (ACTIVE.includes(state)) {
                sums.active += 1
                missing += size - loaded
            } else if (state === 'done' || state === 'failed' || state === 'paused') {
                sums[state] += 1
            }
        }
        return { ...sums, speed, remaining: speed && missing / speed }
    }

    /**
     * Starts an upload when it is its turn.
     * @param {ResumableUpload} upload
     * @returns {Promise<Answer>} as `start()`; nobody need wait for it
     */
    add(upload) {
        if (!this.#uploads.has(upload)) {
            this.#uploads.add(upload)
            for (const type of PARTS) upload.addEventListener(type, this.#onpart)
        }
        const promise = upload.start(this)
        promise.catch(() => {})
        return promise
    }

    /**
     * Takes an upload out of the totals. It neither stops nor cancels it.
     * @param {ResumableUpload} upload
     */
    remove(upload) {
        this.#uploads.delete(upload)
        for (const type of PARTS) upload.removeEventListener(type, this.#onpart)
        this.#progress()
    }

    /** Pauses every upload that is sent or waits. */
    pauseAll() { for (const upload of this.uploads) upload.pause() }

    /** Starts every upload that is paused. */
    resumeAll() { for (const upload of this.uploads) if (upload.state === 'paused') this.add(upload) }

    /**
     * Cancels every upload that is not done.
     * @returns {Promise<void>}
     */
    async cancelAll() { await Promise.all(this.uploads.map((upload) => upload.cancel())) }

    /**
     * Waits for a place.
     * @param {AbortSignal} signal
     * @returns {Promise<() => void>} gives it back
     */
    async turn(signal) {
        if (this.#free > 0) {
            this.#free -= 1
        } else {
            await new Promise((resolve, reject) => {
                this.#waiting.push(resolve)
                signal.addEventListener('abort', () => {
                    const place = this.#waiting.indexOf(resolve)
                    if (place < 0) return
                    this.#waiting.splice(place, 1)
                    reject(signal.reason)
                }, { once: true })
            })
        }
        return () => {
            const next = this.#waiting.shift()
            if (next) next()
            else this.#free += 1
        }
    }

    /** @param {Event} event */
    #onpart = (event) => {
        const upload = /** @type {ResumableUpload} */ (event.target)
        this.#progress()
        if (event.type === 'progress') return
        if (upload.state === 'cancelled') this.remove(upload)
        const { detail } = /** @type {CustomEvent} */ (event)
        this.dispatchEvent(new CustomEvent('state', { detail: { upload, ...detail } }))
    }

    #progress() {
        this.#timer ??= setTimeout(() => {
            this.#timer = undefined
            this.dispatchEvent(new CustomEvent('progress', { detail: this.totals }))
        }, PROGRESS)
    }
}

// MARK: Requests

/**
 * The request with the options' headers, and as `onBeforeRequest` leaves it.
 * @param {RequestSettings} options
 * @param {Order} order
 * @returns {Promise<UploadRequest>}
 */
async function prepared({ headers: given, version, onBeforeRequest }, { method, url, fields = {}, own }) {
    try {
        const headers = new Headers(typeof given === 'function' ? await given() : given)
        if (!own) for (const name of [...headers.keys()]) if (CREATION_ONLY.test(name)) headers.delete(name)
        for (const [name, value] of Object.entries(fields)) headers.set(name, value)
        for (const [name, value] of Object.entries(own ?? {})) {
            if (value && !headers.has(name)) headers.set(name, value)
        }
        if (version) headers.set('Upload-Draft-Interop-Version', String(version))
        const request = { method, url, headers }
        await onBeforeRequest?.(request)
        return request
    } catch (cause) {
        throw callbackError(cause)
    }
}

/**
 * Sends one request.
 * @param {RequestSettings} options
 * @param {Order} order
 * @param {AbortSignal} signal
 * @returns {Promise<Answer>} rejects with UploadError if there is no answer
 */
async function send(options, order, signal) {
    const { stallTimeout, withCredentials, onAfterResponse } = options
    const { body, onsent, isReported, onwatch, inspect, begins = signal } = order
    const request = await prepared(options, order)
    signal.throwIfAborted()
    begins.throwIfAborted()
    const answer = await new Promise((resolve, reject) => {
        const xhr = new XMLHttpRequest()
        /** @type {ReturnType<typeof setTimeout> | undefined} */
        let timer
        const stop = () => xhr.abort()
        const end = () => {
            clearTimeout(timer)
            signal.removeEventListener('abort', stop)
            onwatch?.(() => {})
        }
        /** @param {unknown} error */
        const fail = (error) => {
            end()
            reject(error)
            xhr.abort()
        }
        /** @param {UploadErrorCode} code @param {string} message */
        const broken = (code, message) => fail(new UploadError(message, { code, retryable: true }))
        // Firefox waits without end for bytes of a file that was cut short: it is looked at before the time is over.
        const parts = inspect ? 4 : 1
        const watch = (part = 1) => {
            clearTimeout(timer)
            if (stallTimeout === Infinity) return
            timer = setTimeout(() => {
                if (part === parts) return broken('stalled', 'The connection stalled.')
                watch(part + 1)
                inspect?.().catch((error) => { if (xhr.readyState < 4) fail(error) })
            }, stallTimeout / parts)
        }
        xhr.open(request.method, request.url)
        xhr.withCredentials = withCredentials
        request.headers.forEach((value, name) => xhr.setRequestHeader(name, value))
        if (body) {
            onwatch?.(watch)
            xhr.upload.onprogress = ({ loaded }) => {
                watch()
                onsent?.(loaded)
            }
            // Bytes that have left may still be on their way. If no status reports their arrival, from here on
            // the network and the application may take as long as they like.
            xhr.upload.onload = () => { if (!isReported?.()) clearTimeout(timer) }
        }
        if (!body || body.size > 0) watch()
        xhr.onload = () => {
            end()
            resolve(new Answer(xhr, request.url))
        }
        xhr.onerror = () => broken('network', navigator.onLine ? BROKEN : 'No network connection.')
        // A browser stops requests of a page that is left.
        xhr.onabort = () => signal.aborted ? fail(signal.reason) : broken('network', BROKEN)
        signal.addEventListener('abort', stop, { once: true })
        xhr.send(body ?? null)
    })
    try {
        await onAfterResponse?.(request, answer)
    } catch (cause) {
        throw callbackError(cause)
    }
    return answer
}

/**
 * What a function of the options was asked for may be away, as the server may be.
 * @param {unknown} cause
 */
function callbackError(cause) {
    if (cause instanceof UploadError) return cause
    const words = 'The upload could not be prepared.'
    return new UploadError(words, { code: 'callback', cause, retryable: true })
}

/**
 * An answer that is not the final one and does not lead to it.
 * @param {Answer} answer
 * @param {{words?: string, retryable?: boolean}} details
 */
function failure(answer, details = {}) {
    const { words, retryable } = details
    const { status } = answer
    const isPassing = status >= 500 || [408, 409, 423, 425, 429].includes(status)
    // A passing state has the same sentence everywhere; the reason is for those who look at the answer.
    const known = words ?? WORDS[status] ?? (isPassing ? BUSY : undefined)
    const text = (isPassing ? known ?? answer.reason : answer.reason ?? known) ?? REFUSED
    return new UploadError(text, {
        code: 'server',
        answer,
        retryable: retryable ?? (isPassing && answer.complete !== true),
    })
}

/**
 * A final answer that is no success.
 * @param {Answer} answer
 */
function refusal(answer) {
    const words = answer.reason ?? WORDS[answer.status] ?? REFUSED
    return new UploadError(words, { code: 'refused', answer })
}

/**
 * The status resource of a server that does not link to it.
 * @param {string} url
 */
function besideStatus(url) {
    const status = new URL(url)
    status.pathname += '/status'
    return status.href
}

/**
 * RFC 6266 §4.1, RFC 8187 §3.2.
 * @param {string | undefined} name
 */
function disposition(name) {
    if (!name) return undefined
    /** @param {string} character */
    const escape = (character) => '%' + character.charCodeAt(0).toString(16).toUpperCase()
    // A half of a surrogate pair cannot be encoded. Older compilers do not know the method.
    const whole = /** @type {any} */ (name).toWellFormed()
    return `attachment; filename*=UTF-8''${encodeURIComponent(whole).replace(/['()*]/g, escape)}`
}

// MARK: Options

/** @type {Record<string, (value: any) => boolean>} */
const TERMINATE = {
    headers: (value) => Object(value) === value,
    withCredentials: (value) => typeof value === 'boolean',
    version: isCount,
    signal: (value) => value instanceof AbortSignal,
    onBeforeRequest: isFunction,
    onAfterResponse: isFunction,
}

/** @type {Record<string, (value: any) => boolean>} */
const OPTIONS = {
    ...TERMINATE,
    endpoint: isAddress,
    method: isText,
    metadata: (value) => Object.entries(value).every(([name, text]) => /^(name|type)$/.test(name)
        && /^(string|undefined)$/.test(typeof text)),
    chunkSize: (value) => value === Infinity || isCount(value),
    retryDelays: (value) => value.length > 0 && [...value].every((delay) => delay >= 0 && delay < 2 ** 30),
    stallTimeout: (value) => value === Infinity || (value > 0 && value < 2 ** 31),
    storage: (value) => value === null || isFunction(value?.getItem),
    fingerprint: isText,
    path: (value) => typeof value === 'string',
    url: isAddress,
    shouldRetry: isFunction,
}

/** @param {unknown} value */
function isFunction(value) { return typeof value === 'function' }

/** @param {unknown} value */
function isCount(value) { return Number.isSafeInteger(value) && Number(value) > 0 }

/** @param {unknown} value */
function isAddress(value) { return isText(value) || value instanceof URL }

/** @param {unknown} value */
function isText(value) { return typeof value === 'string' && value !== '' }

/**
 * Throws TypeError for an unknown name and a value of a wrong type, RangeError for a number out of range.
 * @param {object} options
 * @param {Record<string, (value: any) => boolean>} rules
 */
function check(options, rules) {
    const values = /** @type {Record<string, unknown>} */ (options ?? {})
    if (rules.endpoint && !values.endpoint) throw new TypeError('The option endpoint is missing.')
    for (const [name, value] of Object.entries(values)) {
        if (!Object.hasOwn(rules, name)) throw new TypeError(`Unknown option: ${name}.`)
        if (value === undefined || rules[name](value)) continue
        const isRange = typeof value === 'number' || Array.isArray(value)
        throw new (isRange ? RangeError : TypeError)(`Invalid value of option ${name}: ${String(value)}.`)
    }
}

/**
 * The options that have a value.
 * @template {object} Options
 * @param {Options} options
 * @returns {Options}
 */
function given(options) {
    return /** @type {Options} */ (Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)))
}

/**
 * A worker has no document.
 * @param {string | URL} url
 */
function absolute(url) { return new URL(url, globalThis.document?.baseURI ?? location.href).href }

/**
 * Calls `target.onTYPE` for events of a type.
 * @param {any} target
 * @param {string} type
 */
function handle(target, type) {
    target.addEventListener(type, (/** @type {Event} */ event) => target['on' + type]?.(event))
}

// MARK: Storage

/** Reading it throws if the browser stores nothing for this page. */
function defaultStorage() {
    try {
        return globalThis.localStorage ?? null
    } catch {
        return null
    }
}

/**
 * The value of a JSON text; undefined: it is none.
 * @param {string} text
 */
function parsed(text) {
    try {
        return JSON.parse(text)
    } catch {
        return undefined
    }
}

/**
 * A stored entry; undefined: it is broken or has expired.
 * @param {string | null | undefined} text
 */
function remembered(text) {
    const entry = parsed(text ?? '')
    const isWhole = /^https?:\/\/./.test(entry?.url) && typeof entry.name === 'string'
        && typeof entry.endpoint === 'string' && ['size', 'loaded', 'time'].every((key) => entry[key] >= 0)
    return isWhole && !(entry.expires < Date.now()) ? entry : undefined
}

// MARK: The file

/**
 * A digest of its begin, middle and end, or of all of a small file. It tells files apart that were mistaken for each
 * other, not those of an attacker, who can only spoil an upload of their own: 64 bits without cryptography suffice,
 * and SubtleCrypto is not there if the page came without TLS.
 * @param {Blob} file
 */
async function sampled(file) {
    const { size } = file
    const isSmall = size <= 3 * SAMPLE
    let one = 0x9e3779b9
    let two = 0x85ebca6b
    for (const place of isSmall ? [0] : [0, Math.floor(size / 2), size - SAMPLE]) {
        const end = isSmall ? size : place + SAMPLE
        const bytes = new Uint8Array(await file.slice(place, end).arrayBuffer())
        if (bytes.length !== end - place) throw new UploadError(CHANGED, { code: 'changed' })
        for (const byte of bytes) {
            one = Math.imul(one ^ byte, 0x01000193)
            // The high bits reach the low ones, which a product alone never lets them.
            two = Math.imul((two ^ byte) ^ (two >>> 15), 0x9e3779b1)
        }
    }
    return [one, two].map((half) => (half >>> 0).toString(16).padStart(8, '0')).join('')
}

/** Resolves at once, or if the page was left and is kept, when it is shown again. */
let shown = Promise.resolve()
/** @type {() => void} */
let show = () => {}
globalThis.addEventListener?.('pagehide', () => { shown = new Promise((resolve) => { show = resolve }) })
globalThis.addEventListener?.('pageshow', () => show())

// MARK: Time

/**
 * Waits until the time is over, a signal is aborted or an event happens.
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @param {string[]} [events] of the page
 * @returns {Promise<boolean>} whether it was an event
 */
function sleep(ms, signal, events = []) {
    return new Promise((resolve) => {
        /** @param {Event} [event] */
        const end = (event) => {
            clearTimeout(timer)
            signal?.removeEventListener('abort', end)
            for (const type of events) globalThis.removeEventListener(type, end)
            resolve(events.includes(event?.type ?? ''))
        }
        // A listener of the state that comes before may have aborted it.
        const timer = setTimeout(end, signal?.aborted ? 0 : ms)
        signal?.addEventListener('abort', end)
        for (const type of events) globalThis.addEventListener(type, end)
    })
}
