// Resumable uploads of files from a browser (draft-ietf-httpbis-resumable-upload).
//
//     const upload = new ResumableUpload(file, { endpoint: '/files/' })
//     upload.addEventListener('progress', ({ detail }) => show(detail.loaded / detail.total))
//     const answer = await upload.start()
//
// One module without dependencies; README.md beside it has the whole interface. It wants a browser of March 2024
// or later. Requests are XMLHttpRequests, because fetch tells nothing of how an upload proceeds. No interop
// version is named unless the options say so: what a 104 would tell is not for scripts to see.

const PREFIX = 'resumable-upload:'
const PARTIAL = 'application/partial-upload'
const POLL_FIRST = 500
const POLL = 2000
const LOCK_PATIENCE = 3000

/** Fields about the content go with the creation alone: appends have a content of their own. */
const CREATION_ONLY = /^(content-|repr-digest$|want-|idempotency-key$|prefer$)/i

/** What is said where the server gave no reason of its own. */
const WORDS = {
    401: 'You are not signed in.',
    403: 'You may not upload here.',
    404: 'Nothing takes uploads at this address.',
    413: 'The file is too large for this server.',
    415: 'This server does not take files of this type.',
    507: 'The server has no room for the file.',
}

/**
 * @typedef {'idle'|'queued'|'running'|'waiting'|'paused'|'done'|'failed'|'cancelled'} UploadState
 * `waiting`: the next attempt comes by itself.
 */

/**
 * @typedef {'paused'|'cancelled'|'network'|'stalled'|'fields'|'server'|'refused'|'origin'|'locked'|'changed'|
 *     'unreadable'} UploadErrorCode
 * `fields`: the options' function gave none. `server`: the upload failed on its way. `refused`: the final answer is no success. `origin`: the server does
 * not let this page's origin in. `locked`: another window sends this file. `changed`: the server has a file of
 * another length. `unreadable`: the file was changed, moved or removed.
 */

/**
 * @typedef {object} Options
 * @property {string} endpoint where uploads are created
 * @property {string} [method] of the creation; `POST`
 * @property {HeadersInit | (() => HeadersInit | Promise<HeadersInit>)} [fields] request fields. A function is
 *     asked before every request, for tokens that expire. The creation gets all of them, the other requests
 *     all but those about the content.
 * @property {boolean} [withCredentials] cookies and logins for another origin; `false`
 * @property {number} [chunkSize] the most bytes in one request; as many as the server takes
 * @property {number[]} [retryDelays] ms before each attempt that follows a failure without any progress; the last
 *     one before all further attempts, which do not end by themselves; [0, 1000, 3000, 5000, 10000, 20000, 40000]
 * @property {number} [stallTimeout] ms without any progress after which a connection is given up; 60000
 * @property {Storage | null} [storage] where unfinished uploads are remembered; `localStorage`. null: nowhere
 * @property {string} [fingerprint] the name it is remembered by; made of the file's name, type, size and
 *     modification time, and of the endpoint
 * @property {string} [url] of an upload that was created elsewhere
 * @property {number} [version] the draft's interop version, for servers that want one; none
 */

/**
 * @typedef {object} Pending an upload that was begun and is not finished
 * @property {string} fingerprint
 * @property {string} lock the Web Lock that a window has while it sends the file
 * @property {string} url of the upload resource
 * @property {string} endpoint where it was created
 * @property {string} name the file's
 * @property {number} size the file's
 * @property {number} loaded bytes that the server had when it was last asked
 * @property {number} time of that, in ms since 1970
 */

/** Why an upload stopped, in words for people, and in a `code` for programs. */
export class UploadError extends Error {
    /**
     * @param {string} message
     * @param {{code: UploadErrorCode, answer?: Answer, cause?: unknown, retryable?: boolean}} details
     */
    constructor(message, { code, answer, cause, retryable = false }) {
        super(message, { cause })
        this.name = 'UploadError'
        /** @type {UploadErrorCode} */
        this.code = code
        /**
         * The server's answer, where there was one.
         * @type {Answer | undefined}
         */
        this.answer = answer
        /** Whether another attempt may succeed with nothing changed. */
        this.retryable = retryable
    }
}

/** What a server answered. */
export class Answer {
    /** @param {XMLHttpRequest} xhr one that is done @param {string} url what it asked for */
    constructor(xhr, url) {
        this.status = xhr.status
        this.text = xhr.responseText
        /** Where it came from, after redirects. */
        this.url = xhr.responseURL || url
        this.redirected = this.url !== url.split('#')[0]
        /** From another origin, those alone that the server exposes. */
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
     * What a person may be told: of a problem document (RFC 9457) or other JSON, or of a short plain text.
     * @returns {string | undefined}
     */
    get reason() {
        const type = this.headers.get('content-type') ?? ''
        if (/[/+]json\b/i.test(type)) {
            try {
                const { detail, title, message, error } = this.json()
                return [detail, title, message, error].find((text) => typeof text === 'string' && text)
            } catch {
                return undefined
            }
        }
        const text = this.text.trim()
        return /^text\/plain\b/i.test(type) && text && text.length < 500 ? text : undefined
    }

    /**
     * true: the application's own answer; false: the upload protocol's; undefined: it does not say.
     * @returns {boolean | undefined}
     */
    get complete() {
        return { '?1': true, '?0': false }[this.headers.get('upload-complete')?.split(';')[0].trim()]
    }

    /** ms that the server asks to wait. */
    get retryAfter() {
        const value = this.headers.get('retry-after')
        if (!value) return undefined
        const ms = /^\d+$/.test(value) ? value * 1000 : Date.parse(value) - Date.now()
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

/**
 * One file on its way to a server.
 *
 * Events, each with its detail: `progress` `{ loaded, sent, total }` in bytes, `loaded` being what the server
 * has received and, where it does not tell that, what was sent; `state` `{ state, error?, delay?, offline?,
 * answer? }`; `created` `{ url }`. As with other targets, `onprogress`, `onstate` and `oncreated` work as well.
 */
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
    #options
    #endpoint
    /** The resource that tells how much has arrived; null: there is none. */
    #status
    /** The most bytes that the server takes in one request. */
    #limit = Infinity
    /** The fewest that it takes in one which is not the last. */
    #least = 0
    /** How long the server keeps what is unfinished, in ms. */
    #lifetime = Infinity
    /** Bytes that the server said it has. */
    #received = 0
    /** Bytes that the browser says have left, those before them included. */
    #sent = 0
    /** Whether the status resource has answered. */
    #isWatched = false
    /** Called at every sign that the running request proceeds. */
    #proceeds = () => {}
    #controller = new AbortController()
    /** Ends the wait for the next attempt. */
    #waiting = new AbortController()
    #promise

    /** @param {Blob} file @param {Options} options */
    constructor(file, options) {
        super()
        for (const type of ['progress', 'state', 'created']) {
            this.addEventListener(type, (event) => this['on' + type]?.(event))
        }
        this.#options = {
            method: 'POST',
            fields: {},
            withCredentials: false,
            chunkSize: Infinity,
            retryDelays: [0, 1000, 3000, 5000, 10000, 20000, 40000],
            stallTimeout: 60000,
            storage: defaultStorage(),
            version: undefined,
        }
        for (const [name, value] of Object.entries(options)) {
            if (value !== undefined) this.#options[name] = value
        }
        this.file = file
        // A worker has no document.
        const base = globalThis.document?.baseURI ?? location.href
        this.#endpoint = new URL(options.endpoint, base).href
        /** What it is remembered by; undefined: a Blob without a name is not. */
        this.fingerprint = options.fingerprint ?? (file.name === undefined ? undefined
            : [file.name, file.type, file.size, file.lastModified, this.#endpoint].join('|'))
        if (options.url) {
            this.url = new URL(options.url, base).href
            this.#status = besideStatus(this.url)
        } else {
            this.#recall()
        }
    }

    /** Bytes that the server has; where it tells that to none but the next attempt, bytes that were sent. */
    get loaded() { return this.#status ? this.#received : Math.max(this.#received, this.#sent) }

    /**
     * Uploads that were begun in this browser and are not finished. Their files are not kept: they must be
     * chosen again.
     * @param {Storage | null} [storage]
     * @returns {Pending[]}
     */
    static pending(storage = defaultStorage()) {
        if (!storage) return []
        return Object.keys(storage).filter((key) => key.startsWith(PREFIX)).flatMap((key) => {
            const entry = parsed(storage.getItem(key))
            if (typeof entry?.url === 'string' && !(entry.expires < Date.now())) {
                return [{ ...entry, fingerprint: key.slice(PREFIX.length), lock: key }]
            }
            storage.removeItem(key)
            return []
        }).sort((one, other) => one.time - other.time)
    }

    /**
     * Forgets one of them; what the server has of it stays there until it expires.
     * @param {string} fingerprint
     */
    static forget(fingerprint, storage = defaultStorage()) { storage?.removeItem(PREFIX + fingerprint) }

    /**
     * Sends the file, from where it stands, with as many attempts as it takes.
     * @param {UploadQueue} [queue] whose turn it waits for
     * @returns {Promise<Answer>} the application's answer; rejects with UploadError, after `pause()` and
     *     `cancel()` too, and where that answer is no success
     */
    start(queue) {
        if (['queued', 'running', 'waiting', 'done'].includes(this.state)) return this.#promise
        const before = this.#promise
        const controller = this.#controller = new AbortController()
        this.#set(queue ? 'queued' : 'running')
        return this.#promise = this.#run(before, queue, controller.signal)
    }

    /** Stops sending; what the server has stays there, and `start()` goes on. */
    pause() {
        if (!this.#isActive) return
        this.#set('paused')
        this.#controller.abort(new UploadError('Paused.', { code: 'paused' }))
    }

    /** Begins the next attempt at once, if it waits for that. */
    retryNow() { this.#waiting.abort() }

    /**
     * Stops for good, and removes what the server has.
     * @returns {Promise<void>}
     */
    async cancel() {
        if (this.state === 'done' || this.state === 'cancelled') return
        this.#set('cancelled')
        this.#controller.abort(new UploadError('Cancelled.', { code: 'cancelled' }))
        this.#forgetStored()
        // A creation that was answered meanwhile has left its URL.
        await this.#promise?.catch(() => {})
        const { url } = this
        this.#forget()
        if (!url) return
        // Not while another window sends to it.
        const signal = AbortSignal.timeout(30000)
        await this.#exclusively(signal, () => this.#send('DELETE', url, {}, signal)).catch(() => {})
    }

    get #isActive() { return ['queued', 'running', 'waiting'].includes(this.state) }

    async #run(before, queue, signal) {
        let leave
        try {
            await before?.catch(() => {})
            signal.throwIfAborted()
            leave = await queue?.turn(signal)
            if (this.state === 'queued') this.#set('running')
            return await this.#exclusively(signal, () => this.#persist(signal))
        } catch (error) {
            if (signal.aborted) throw signal.reason
            this.#set('failed', { error })
            throw error
        } finally {
            leave?.()
        }
    }

    /** Of several windows with the same file one sends. */
    async #exclusively(signal, body) {
        // There are no locks if the page came without TLS.
        if (!navigator.locks || this.fingerprint === undefined) return body()
        // A page that is being reloaded gives its locks back a moment later.
        const patience = AbortSignal.any([signal, AbortSignal.timeout(LOCK_PATIENCE)])
        let isLocked = false
        try {
            return await navigator.locks.request(PREFIX + this.fingerprint, { signal: patience }, () => {
                isLocked = true
                return body()
            })
        } catch (error) {
            if (isLocked || signal.aborted) throw error
            // Browsers that keep nothing for this page give it no locks either: it is alone then.
            if (!patience.aborted) return body()
            throw new UploadError('This file is being sent in another window.', { code: 'locked' })
        }
    }

    /** Tries until there is a final answer, or no more hope. */
    async #persist(signal) {
        const { retryDelays } = this.#options
        // Another window may have begun it meanwhile.
        if (!this.url) this.#recall()
        let attempt = 0
        let before = this.#received
        let wasRenewed = false
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
                // A token that has expired: the function is asked for another one, once.
                const isRenewed = error.answer?.status === 401 && typeof this.#options.fields === 'function'
                if (!error.retryable && (!isRenewed || wasRenewed)) throw error
                wasRenewed = isRenewed
                if (this.#received > before) attempt = 0
                before = this.#received
                const backoff = retryDelays[Math.min(attempt, retryDelays.length - 1)] ?? 1000
                const delay = Math.max(backoff * (0.75 + Math.random() / 2), error.answer?.retryAfter ?? 0)
                if (navigator.onLine) attempt += 1
                this.#waiting = new AbortController()
                this.#set('waiting', { error, delay, offline: !navigator.onLine })
                await untilNextAttempt(delay, AbortSignal.any([signal, this.#waiting.signal]))
                signal.throwIfAborted()
                this.#set('running')
            }
        }
    }

    /** One attempt: asks how much the server has, or creates the upload, and sends what is missing. */
    async #attempt(signal) {
        let offset = this.url ? await this.#ask(signal) : undefined
        offset ??= await this.#create(signal)
        const isOver = new AbortController()
        this.#watch(AbortSignal.any([signal, isOver.signal]))
        try {
            for (;;) {
                this.#sent = offset
                this.#reached(offset)
                const size = Math.max(Math.min(this.#options.chunkSize, this.#limit), this.#least)
                const end = Math.min(this.file.size, offset + size)
                const answer = await this.#append(offset, end, signal)
                const isLast = end === this.file.size
                // A redirect was the application's: the protocol has none.
                if (answer.complete ?? (isLast && (answer.ok || answer.redirected))) return answer
                const limit = answer.limit('max-append-size')
                if (answer.status === 413 && limit > 0 && limit < end - offset) {
                    this.#limit = limit
                    offset = answer.integer('upload-offset') ?? offset
                } else if (!answer.ok) {
                    // Of an upload that is gone the next attempt hears, and creates another.
                    throw failure(answer, { retryable: [404, 410].includes(answer.status) || undefined })
                } else if (isLast) {
                    // Taken, and its answer is yet to come: the next attempt asks for it.
                    throw failure(answer, { words: 'The server has not answered yet.', retryable: true })
                } else {
                    offset = answer.integer('upload-offset') ?? end
                }
            }
        } finally {
            isOver.abort()
        }
    }

    /** How much the server has; undefined: nothing any more. */
    async #ask(signal) {
        const answer = await this.#send('HEAD', this.url, {}, signal)
        if ([403, 404, 410].includes(answer.status)) {
            this.#forget()
            return undefined
        }
        if (!answer.ok) throw failure(answer)
        const offset = answer.integer('upload-offset')
        if (offset === undefined) {
            throw new UploadError('The server does not tell how much it has.', { code: 'server', answer })
        }
        const length = answer.integer('upload-length') ?? this.file.size
        if (length !== this.file.size || offset > length) {
            throw new UploadError('The file has changed since its upload began.', { code: 'changed', answer })
        }
        this.#learn(answer)
        return offset
    }

    async #create(signal) {
        const { file } = this
        const fields = { 'Upload-Complete': '?0', 'Upload-Length': String(file.size) }
        const own = { 'Content-Type': file.type, 'Content-Disposition': disposition(file.name) }
        const answer = await this.#send(this.#options.method, this.#endpoint, fields, signal, { own })
        if (!answer.ok) throw failure(answer)
        const location = answer.headers.get('location')
        if (!location || answer.complete) {
            const words = 'This server takes no resumable uploads at this address.'
            throw new UploadError(words, { code: 'server', answer })
        }
        this.url = new URL(location, answer.url).href
        this.#status = answer.link('status') ?? besideStatus(this.url)
        this.#learn(answer)
        this.#store()
        this.#tell('created', { url: this.url })
        return 0
    }

    #append(offset, end, signal) {
        const fields = {
            'Content-Type': PARTIAL,
            'Upload-Offset': String(offset),
            'Upload-Complete': end === this.file.size ? '?1' : '?0',
        }
        return this.#send('PATCH', this.url, fields, signal, { body: this.file.slice(offset, end), offset })
    }

    #learn(answer) {
        this.#limit = answer.limit('max-append-size') || Infinity
        this.#least = answer.limit('min-append-size') ?? 0
        this.#lifetime = (answer.limit('max-age') ?? Infinity) * 1000
    }

    /**
     * Asks the status resource, which disturbs nothing, how much has arrived. What a browser says of its own
     * progress runs ahead by what its machine and the network have buffered.
     */
    async #watch(signal) {
        const { withCredentials } = this.#options
        const credentials = withCredentials ? 'include' : 'same-origin'
        for (let delay = POLL_FIRST; this.#status; delay = POLL) {
            await sleep(delay, signal)
            if (signal.aborted) return
            try {
                const headers = await this.#fields()
                const response = await fetch(this.#status, { headers, credentials, signal, cache: 'no-store' })
                if (response.status >= 500 || response.status === 429) continue
                const { offset } = response.ok ? await response.json().catch(() => ({})) : {}
                if (signal.aborted) return
                if (!Number.isSafeInteger(offset) || offset < 0) {
                    // An upload that failed has no status any more, and its PATCH says why.
                    if (!this.#isWatched) this.#status = null
                    return
                }
                this.#isWatched = true
                // All there: the application works on it, for as long as it likes.
                if (offset > this.#received || offset === this.file.size) this.#proceeds()
                this.#reached(Math.min(offset, this.file.size))
            } catch {
                // No network, or none that scripts may use: what the upload itself meets is what counts.
                if (signal.aborted) return
            }
        }
    }

    /** The options' fields, but for those that go with the creation alone. */
    async #fields(isCreation = false) {
        const { fields } = this.#options
        let all
        try {
            all = new Headers(typeof fields === 'function' ? await fields() : fields)
        } catch (cause) {
            // What it asks for them may be away, as the server may be.
            throw new UploadError(cause?.message || 'The sign-in cannot be reached.', {
                code: 'fields',
                cause,
                retryable: typeof fields === 'function',
            })
        }
        if (!isCreation) {
            for (const name of [...all.keys()]) if (CREATION_ONLY.test(name)) all.delete(name)
        }
        return all
    }

    /**
     * One request.
     * @returns {Promise<Answer>} rejects with UploadError where there is no answer
     */
    async #send(method, url, fields, signal, { own, body, offset } = {}) {
        const all = await this.#fields(own !== undefined)
        for (const [name, value] of Object.entries(fields)) all.set(name, value)
        for (const [name, value] of Object.entries(own ?? {})) {
            if (value && !all.has(name)) all.set(name, value)
        }
        if (this.#options.version) all.set('Upload-Draft-Interop-Version', String(this.#options.version))
        signal.throwIfAborted()
        return new Promise((resolve, reject) => {
            const { stallTimeout, withCredentials } = this.#options
            const xhr = new XMLHttpRequest()
            let timer
            const stop = () => xhr.abort()
            const end = (settle, value) => {
                clearTimeout(timer)
                signal.removeEventListener('abort', stop)
                this.#proceeds = () => {}
                settle(value)
            }
            const fail = (code, message) => end(reject, new UploadError(message, { code, retryable: true }))
            const watch = () => {
                clearTimeout(timer)
                timer = setTimeout(() => {
                    xhr.onabort = null
                    xhr.abort()
                    fail('stalled', 'The connection stalled.')
                }, stallTimeout)
            }
            xhr.open(method, url)
            xhr.withCredentials = withCredentials
            all.forEach((value, name) => xhr.setRequestHeader(name, value))
            if (body) {
                this.#proceeds = watch
                xhr.upload.onprogress = ({ loaded }) => {
                    watch()
                    this.#sent = offset + loaded
                    this.#progress()
                }
                // What has left may still be on its way. Where nothing tells of its arrival, nobody knows from
                // here on whether the network or the application takes so long.
                xhr.upload.onload = () => { if (!this.#isWatched) clearTimeout(timer) }
            }
            if (!body || body.size > 0) watch()
            xhr.onload = () => end(resolve, new Answer(xhr, url))
            xhr.onerror = () => fail('network', navigator.onLine ? 'The connection broke.' : 'There is no network.')
            xhr.onabort = () => end(reject, signal.reason)
            signal.addEventListener('abort', stop, { once: true })
            xhr.send(body ?? null)
        })
    }

    /** What is behind an error of which the browser tells too little. */
    async #explained(error, attempt) {
        if (!(error instanceof UploadError) || error.code !== 'network') return asUploadError(error)
        try {
            await this.file.slice(0, 1).arrayBuffer()
        } catch (cause) {
            const words = 'The file cannot be read any more: it was changed, moved or removed.'
            return new UploadError(words, { code: 'unreadable', cause })
        }
        const { origin } = new URL(this.#endpoint)
        if (attempt === 0 || this.url || origin === location.origin) return error
        // A server that is there and never lets a creation through does not let this page's origin in.
        const request = { mode: 'no-cors', method: 'HEAD', cache: 'no-store', credentials: 'omit' }
        const isThere = await fetch(this.#endpoint, request).then(() => true, () => false)
        if (!isThere) return error
        return new UploadError(`${origin} takes no uploads from this page.`, { code: 'origin', cause: error })
    }

    #reached(offset) {
        const isNew = offset !== this.#received
        this.#progress(offset)
        if (isNew) this.#store()
    }

    #progress(received = this.#received) {
        this.#received = received
        this.#sent = Math.max(this.#sent, received)
        this.#tell('progress', { loaded: this.loaded, sent: this.#sent, total: this.file.size })
    }

    #set(state, detail = {}) {
        this.state = state
        this.#tell('state', { state, ...detail })
    }

    #tell(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })) }

    /** Takes up what was begun before. */
    #recall() {
        const entry = ResumableUpload.pending(this.#options.storage)
            .find(({ fingerprint }) => fingerprint === this.fingerprint)
        if (!entry) return
        this.url = entry.url
        this.#status = entry.status ?? besideStatus(entry.url)
        this.#received = entry.loaded ?? 0
    }

    #store() {
        if (this.fingerprint === undefined || !this.url) return
        const time = Date.now()
        const entry = {
            url: this.url,
            status: this.#status ?? undefined,
            endpoint: this.#endpoint,
            name: this.file.name,
            size: this.file.size,
            loaded: this.#received,
            time,
            expires: Number.isFinite(this.#lifetime) ? time + this.#lifetime : undefined,
        }
        try {
            this.#options.storage?.setItem(PREFIX + this.fingerprint, JSON.stringify(entry))
        } catch {
            // Full, or forbidden: this upload resumes in this page alone.
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
            ResumableUpload.forget(this.fingerprint, this.#options.storage)
        } catch {
            // Forbidden: it was never stored.
        }
    }
}

/**
 * Starts uploads in the order in which they are added, so many at a time. Three of them, each with its
 * question after its status, are as many connections as a browser opens to one server over HTTP/1.1.
 */
export class UploadQueue {
    #free
    #waiting = []

    constructor(concurrency = 3) { this.#free = concurrency }

    /**
     * Starts it when it is its turn.
     * @param {ResumableUpload} upload
     * @returns {Promise<Answer>} as `start()`
     */
    add(upload) { return upload.start(this) }

    /**
     * Waits for a place.
     * @param {AbortSignal} signal
     * @returns {Promise<() => void>} what gives it back
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
}

/** Reading it throws where the browser keeps nothing for this page. */
function defaultStorage() {
    try {
        return globalThis.localStorage ?? null
    } catch {
        return null
    }
}

/** What JSON says; undefined: it is none. */
function parsed(text) {
    try {
        return JSON.parse(text)
    } catch {
        return undefined
    }
}

/** The status resource of a server that does not link to it. */
function besideStatus(url) {
    const status = new URL(url)
    status.pathname += '/status'
    return status.href
}

/** RFC 6266 §4.1, RFC 8187 §3.2. */
function disposition(name) {
    if (!name) return undefined
    const escape = (character) => '%' + character.charCodeAt(0).toString(16).toUpperCase()
    const encoded = encodeURIComponent(name.toWellFormed?.() ?? name).replace(/['()*]/g, escape)
    return `attachment; filename*=UTF-8''${encoded}`
}

/** An answer that is not the final one and does not lead there. */
function failure(answer, { words, retryable } = {}) {
    const { status } = answer
    const isPassing = status >= 500 || [408, 409, 423, 425, 429].includes(status)
    return new UploadError(answer.reason ?? words ?? WORDS[status] ?? `The server answered ${status}.`, {
        code: 'server',
        answer,
        retryable: retryable ?? (isPassing && answer.complete !== true),
    })
}

/** A final answer that is no success. */
function refusal(answer) {
    const words = answer.reason ?? WORDS[answer.status] ?? `The server refused the file (${answer.status}).`
    return new UploadError(words, { code: 'refused', answer })
}

function asUploadError(error) {
    if (error instanceof UploadError) return error
    return new UploadError(error?.message ?? String(error), { code: 'server', cause: error })
}

function sleep(ms, signal) {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, ms)
        signal.addEventListener('abort', () => { clearTimeout(timer); resolve() }, { once: true })
    })
}

/**
 * Ends when the delay is over; at once when the network comes back or the page is shown again; not while there is
 * no network, unless the signal says so.
 */
async function untilNextAttempt(delay, signal) {
    const over = new AbortController()
    const either = AbortSignal.any([signal, over.signal])
    const back = new Promise((resolve) => {
        for (const type of ['online', 'pageshow']) {
            globalThis.addEventListener(type, resolve, { once: true, signal: either })
        }
    })
    await Promise.race([sleep(delay, either), back])
    // Some systems never say that the network is back.
    while (!navigator.onLine && !signal.aborted) await Promise.race([back, sleep(60000, either)])
    over.abort()
}
