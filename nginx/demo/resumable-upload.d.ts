/** `waiting`: the next attempt begins by itself. */
export type UploadState = 'idle' | 'queued' | 'running' | 'waiting' | 'paused' | 'done' | 'failed' | 'cancelled'

/**
 * - `paused`, `cancelled`: by the method.
 * - `network`: the connection broke, or there is none. `stalled`: nothing moved for `stallTimeout`.
 * - `callback`: `headers`, `onBeforeRequest` or `onAfterResponse` threw or rejected; see `cause`.
 * - `server`: the upload failed on its way. `refused`: the application's final answer is no success.
 * - `origin`: the server does not let this page's origin in.
 * - `locked`: another window sends this file.
 * - `changed`: the file is not the one that the upload began with. `unreadable`: it was changed, moved or removed.
 */
export type UploadErrorCode =
    | 'paused' | 'cancelled' | 'network' | 'stalled' | 'callback' | 'server' | 'refused' | 'origin' | 'locked'
    | 'changed' | 'unreadable'

export type UploadHeaders = HeadersInit | (() => HeadersInit | Promise<HeadersInit>)

/** A request that is about to be sent. Its URL and headers may be changed, its headers in place. */
export interface UploadRequest {
    method: string
    url: string
    readonly headers: Headers
}

export interface TerminateOptions {
    /**
     * Request headers. A function is asked before every request, for tokens that expire, and once more after 401.
     * If it rejects, the next attempt asks it again. The creation gets all of them, other requests all but those
     * about the content.
     */
    headers?: UploadHeaders | undefined
    /** Cookies and logins for another origin; false. */
    withCredentials?: boolean | undefined
    /** The draft's interop version, for servers that want one; none. */
    version?: number | undefined
    /** Stops it. */
    signal?: AbortSignal | undefined
    /** Called before every request, those for the status included. */
    onBeforeRequest?: ((request: UploadRequest) => void | Promise<void>) | undefined
    /** Called with every answer, except those about the status. */
    onAfterResponse?: ((request: UploadRequest, answer: Answer) => void | Promise<void>) | undefined
}

export interface UploadOptions extends TerminateOptions {
    /** Where uploads are created. */
    endpoint: string | URL
    /** Of the creation; POST. */
    method?: string | undefined
    /** Pauses the upload; `start()` rejects with its reason. */
    signal?: AbortSignal | undefined
    /** The name and media type that the creation gives the file; the file's own. */
    metadata?: { name?: string | undefined, type?: string | undefined } | undefined
    /** The most bytes in one request; as many as the server takes. */
    chunkSize?: number | undefined
    /**
     * ms before each attempt that follows a failure without any progress, give or take a third. The last one goes
     * before all further attempts, which do not end by themselves; [0, 1000, 3000, 5000, 10000, 20000, 45000].
     */
    retryDelays?: readonly number[] | undefined
    /** ms without any progress after which a connection is given up; 60000. */
    stallTimeout?: number | undefined
    /** Where unfinished uploads are remembered; localStorage. null: nowhere. */
    storage?: Storage | null | undefined
    /**
     * What it is remembered by; made of the file's name, path, type, size, modification time and samples of its
     * content, and the endpoint. An upload is never continued with a file whose samples differ.
     */
    fingerprint?: string | undefined
    /**
     * Where the file is below the folder that was chosen or dropped, as `lib/a.js`: part of what it is remembered
     * by; the file's `webkitRelativePath`. It is not sent.
     */
    path?: string | undefined
    /** Of an upload that was created elsewhere. */
    url?: string | URL | undefined
    /**
     * Whether another attempt follows a failure; `attempt` counts those before it without any progress. undefined:
     * as `error.retryable` says. It is not asked after a final answer, or if the file has changed.
     */
    shouldRetry?: ((error: UploadError, attempt: number) => boolean | undefined) | undefined
}

/** An upload that was begun in this browser and is not finished. */
export interface Pending {
    fingerprint: string
    /** The Web Lock that a window has while it sends the file. */
    lock: string
    /** Of the upload resource. */
    url: string
    /** The resource that reports how much has arrived. */
    status?: string
    /** Where it was created. */
    endpoint: string
    /** The file's. */
    name: string
    /** The file's, below the folder that was chosen; empty: in none. */
    path?: string
    /** A digest of bytes of the file. An entry of version 0.1.0 has none, and is not continued. */
    sample?: string
    /** The file's, in bytes. */
    size: number
    /** Bytes that the server had when it was last asked. */
    loaded: number
    /** When that was, in ms since 1970. */
    time: number
    /** When the server removes it, in ms since 1970. */
    expires?: number
}

/** In bytes. `loaded`: received by the server, or sent if it does not report that. `sent`: the browser's word. */
export interface ProgressDetail {
    loaded: number
    sent: number
    total: number
}

export type StateDetail =
    | { state: 'queued' | 'running' | 'paused' | 'cancelled' }
    /** `delay`: ms until the next attempt. `offline`: the browser says that there is no network. */
    | { state: 'waiting', error: UploadError, delay: number, attempt: number, offline: boolean }
    | { state: 'failed', error: Error }
    | { state: 'done', answer: Answer }

export interface UploadEvents {
    /** Some ten a second at most. */
    progress: CustomEvent<ProgressDetail>
    state: CustomEvent<StateDetail>
    created: CustomEvent<{ url: string }>
}

/** Sums over the uploads of a queue. */
export interface Totals {
    /** Uploads. */
    count: number
    /** Bytes. */
    total: number
    /** Bytes. */
    loaded: number
    done: number
    failed: number
    paused: number
    /** Uploads that are sent or wait, for their turn or for the next attempt. */
    active: number
    /** Bytes a second; undefined while it is not known. */
    speed: number | undefined
    /** Seconds until the active ones are sent; undefined while it is not known. */
    remaining: number | undefined
}

export interface QueueEvents {
    /** Some ten a second at most. */
    progress: CustomEvent<Totals>
    state: CustomEvent<StateDetail & { upload: ResumableUpload }>
}

/** Why an upload stopped: a message for people, a code for programs. */
export class UploadError extends Error {
    constructor(message: string, details: {
        code: UploadErrorCode, answer?: Answer | undefined, cause?: unknown, retryable?: boolean | undefined
    })
    code: UploadErrorCode
    /** The server's answer, if there was one. */
    answer: Answer | undefined
    /** Whether another attempt may succeed with nothing changed. */
    retryable: boolean
}

/** What a server answered. */
export class Answer {
    constructor(xhr: XMLHttpRequest, url: string)
    status: number
    text: string
    /** Where it came from, after redirects. */
    url: string
    redirected: boolean
    /** From another origin, only those that the server exposes. */
    headers: Headers
    /** Whether the status is 2xx. */
    get ok(): boolean
    /** Throws SyntaxError if the text is no JSON. */
    json(): any
    /** A sentence for people, of a problem document (RFC 9457), other JSON, or a short plain text. */
    get reason(): string | undefined
    /** true: the application's own answer; false: the upload protocol's; undefined: it does not say. */
    get complete(): boolean | undefined
    /** ms that the server asks to wait. */
    get retryAfter(): number | undefined
    /** The value of an Integer field (RFC 9651). */
    integer(name: string): number | undefined
    /** A member of Upload-Limit. */
    limit(key: string): number | undefined
    /** The target of a Link with this relation, absolute. */
    link(relation: string): string | undefined
}

/** An EventTarget whose events have types. There is no such class at run time. */
declare class TypedEventTarget<Events> extends EventTarget {
    addEventListener<Type extends keyof Events & string>(
        type: Type,
        listener: (this: this, event: Events[Type]) => void,
        options?: boolean | AddEventListenerOptions
    ): void
    addEventListener(
        type: string,
        listener: EventListenerOrEventListenerObject | null,
        options?: boolean | AddEventListenerOptions
    ): void
    removeEventListener<Type extends keyof Events & string>(
        type: Type,
        listener: (this: this, event: Events[Type]) => void,
        options?: boolean | EventListenerOptions
    ): void
    removeEventListener(
        type: string,
        listener: EventListenerOrEventListenerObject | null,
        options?: boolean | EventListenerOptions
    ): void
}

/** One file on its way to a server. */
export class ResumableUpload extends TypedEventTarget<UploadEvents> {
    /** Throws TypeError or RangeError for an option that is unknown, missing or wrong. */
    constructor(file: Blob, options: UploadOptions)
    file: Blob
    state: UploadState
    /** The server's upload resource, once there is one; of an earlier upload, once `identify()` has found it. */
    url: string | undefined
    /** What it is remembered by, once `identify()` or `start()` has read the file; undefined: it is not. */
    fingerprint: string | undefined
    /** Bytes that the server has; bytes that were sent, if it does not report that. */
    get loaded(): number
    /** Bytes a second; undefined while it is not known or nothing moves. */
    get speed(): number | undefined
    /** Seconds until everything is sent; undefined as `speed`. */
    get remaining(): number | undefined
    /** Whether the upload goes on after a reload, when the same file is chosen again. */
    get isRemembered(): boolean
    /**
     * Reads samples of the file, and finds an upload of it that was begun before: then `url` and `loaded` are known.
     * Resolves to what it is remembered by. Rejects with UploadError if the file cannot be read. `start()` calls it.
     */
    identify(): Promise<string | undefined>
    /**
     * Sends the file from the offset that the server has, in as many attempts as it takes. Resolves to the
     * application's answer. Rejects with UploadError, also after `pause()` and `cancel()` and if that answer is no
     * success, and with the reason of an aborted `signal`; a creation that was sent is awaited first, for at most
     * 2.5 seconds.
     */
    start(queue?: UploadQueue): Promise<Answer>
    /** Stops sending. The server keeps its part, and `start()` goes on. */
    pause(): void
    /** Begins the next attempt at once, if it waits for that. */
    retryNow(): void
    /** Stops for good, and removes the server's part. Never rejects. */
    cancel(): Promise<void>
    /** Uploads that were begun in this browser and are not finished: their files must be chosen again. */
    static pending(storage?: Storage | null): Pending[]
    /** Forgets one of them. The server keeps its part until it expires. */
    static forget(fingerprint: string, storage?: Storage | null): void
    /** Removes an upload from its server. Rejects with UploadError; one that is gone already is a success. */
    static terminate(url: string | URL, options?: TerminateOptions): Promise<void>

    onprogress: ((event: UploadEvents['progress']) => void) | null
    onstate: ((event: UploadEvents['state']) => void) | null
    oncreated: ((event: UploadEvents['created']) => void) | null
}

/** Starts uploads in the order in which they are added, so many at a time, and adds up their progress. */
export class UploadQueue extends TypedEventTarget<QueueEvents> {
    /** Throws RangeError if `concurrency`, 3 by default, is no whole number of 1 or more. */
    constructor(concurrency?: number)
    /** The uploads that were added and neither cancelled nor removed, in order. */
    get uploads(): ResumableUpload[]
    get totals(): Totals
    /** Starts an upload when it is its turn; also one that was paused or has failed. */
    add(upload: ResumableUpload): Promise<Answer>
    /** Takes an upload out of the totals. It neither stops nor cancels it. */
    remove(upload: ResumableUpload): void
    /** Pauses every upload that is sent or waits. */
    pauseAll(): void
    /** Starts every upload that is paused. */
    resumeAll(): void
    /** Cancels every upload that is not done. */
    cancelAll(): Promise<void>
    /** Waits for a place, and resolves to a function that gives it back. */
    turn(signal: AbortSignal): Promise<() => void>

    onprogress: ((event: QueueEvents['progress']) => void) | null
    onstate: ((event: QueueEvents['state']) => void) | null
}

// Only what says so is exported.
export {}
