// The page: files come in by choice, drop or paste; each is one item of the list with its progress and buttons.
//
// Text comes from file names and servers, and becomes text alone (textContent). The live region says changes of
// states, never progress.

import { ResumableUpload, UploadQueue } from './resumable-upload.js'

/**
 * @typedef {import('./resumable-upload.js').Answer} Answer
 * @typedef {import('./resumable-upload.js').Pending} Pending
 * @typedef {import('./resumable-upload.js').StateDetail} StateDetail
 */

/** How long Cancel and Discard can be undone, in ms. */
const UNDO = 8000
/** Files that are looked into at the same time. */
const READ_TOGETHER = 16

/** @param {string} id @returns {any} */
const element = (id) => document.getElementById(id)
const endpoint = new URL(element('page').dataset.endpoint, document.baseURI).href
const queue = new UploadQueue(3)
/**
 * Every file of the list, by what its upload is remembered by; one that cannot be read or is a double, by its upload.
 * @type {Map<unknown, Item>}
 */
const items = new Map()
/**
 * Those that are about to be cancelled.
 * @type {Set<Item>}
 */
const leaving = new Set()

// MARK: Words

/**
 * With a space that does not break.
 * @param {number} count
 */
function bytes(count) {
    for (const [unit, size] of /** @type {[string, number][]} */ ([['GB', 1e9], ['MB', 1e6], ['kB', 1e3]])) {
        if (count >= size * 0.9995) return `${(count / size).toFixed(count < size * 99.95 ? 1 : 0)}\u00a0${unit}`
    }
    return count === 1 ? '1\u00a0byte' : `${Math.round(count)}\u00a0bytes`
}

/** @param {number} seconds */
function duration(seconds) {
    if (seconds < 60) return `${Math.max(1, Math.round(seconds))}\u00a0s`
    if (seconds < 5400) return `${Math.round(seconds / 60)}\u00a0min`
    return `${(seconds / 3600).toFixed(1)}\u00a0h`
}

/** @param {{speed?: number, remaining?: number}} pace */
function pace({ speed, remaining }) {
    return speed && remaining !== undefined ? `, ${bytes(speed)}/s, ${duration(remaining)} left` : ''
}

/**
 * Says states to those who do not see them, all that come within a moment together; of many, only the sum.
 * @type {(sentence: string) => void}
 */
const say = (() => {
    /** @type {string[]} */
    let sentences = []
    return (sentence) => {
        if (sentences.push(sentence) > 1) return
        setTimeout(() => {
            element('live').textContent = sentences.length > 4 ? `${summary()}.` : sentences.join(' ')
            sentences = []
        }, 300)
    }
})()

// MARK: Elements

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {object} properties
 * @param {...(Node | string)} children
 */
function make(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties)
    made.append(...children)
    return made
}

/** @param {string} name */
function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use')
    use.setAttribute('href', '#' + name)
    svg.setAttribute('class', 'icon')
    svg.setAttribute('aria-hidden', 'true')
    svg.append(use)
    return svg
}

/**
 * A name may be written from right to left, whatever stands around it. The folder tells equal names apart.
 * @param {string} name
 * @param {string} details
 * @param {string} [path]
 */
function title(name, details, path = '') {
    const folder = path.slice(0, path.lastIndexOf('/') + 1)
    return make('span', { className: 'file' },
        make('bdi', { className: 'name', textContent: name }), ' ',
        make('span', { className: 'size' }, make('bdi', { textContent: folder }), ` ${details}`))
}

/**
 * A button whose accessible name has the file's.
 * @param {HTMLElement} button
 * @param {string} text
 * @param {string} name
 */
function label(button, text, name) {
    if (button.textContent === text) return
    button.textContent = text
    button.ariaLabel = `${text} ${name}`
}

/**
 * Takes an item of a list away; the keyboard stays near where it was.
 * @param {Element} node
 */
function takeAway(node, next = node.nextElementSibling ?? node.previousElementSibling) {
    const hadFocus = node.contains(document.activeElement)
    node.remove()
    if (hadFocus) (next?.querySelector('button:not([hidden])') ?? element('pick')).focus()
}

// MARK: One file

class Item {
    #bar = make('progress')
    #words = make('span')
    #icon = make('span')
    #symbol = ''
    #now = make('button', { type: 'button', hidden: true })
    #go = make('button', { type: 'button' })
    #leave = make('button', { type: 'button' })
    #more = make('details', { hidden: true })
    /** When the next attempt begins, and why the last one failed. */
    #next = { time: 0, message: '' }
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #timer
    #wasPaused = false
    #key

    /**
     * @param {ResumableUpload} upload
     * @param {string} path
     * @param {unknown} key in `items`
     */
    constructor(upload, path, key) {
        const { name: base } = /** @type {File} */ (upload.file)
        this.upload = upload
        this.name = path || base
        this.#key = key
        const { name } = this
        this.#bar.max = upload.file.size || 1
        this.#bar.value = upload.loaded
        this.#bar.ariaLabel = `Progress of ${name}`
        this.#now.onclick = () => upload.retryNow()
        this.#go.onclick = () => this.#isStopped ? this.start() : upload.pause()
        this.#leave.onclick = () => leaving.has(this) ? this.stay() : this.leave()
        label(this.#now, 'Try now', name)
        this.node = make('li', {},
            make('div', { className: 'row' }, title(base, bytes(upload.file.size), path),
                make('div', { className: 'buttons' }, this.#now, this.#go, this.#leave)),
            this.#bar,
            make('p', { className: 'state' }, this.#icon, this.#words),
            this.#more)
        upload.onprogress = () => this.show()
        upload.onstate = ({ detail }) => this.#change(detail)
    }

    get #isStopped() { return ['idle', 'paused', 'failed'].includes(this.upload.state) }

    start() { queue.add(this.upload) }

    /** Shows that the same file is in the list already. Two files may be equal: the user decides. */
    showDouble() {
        this.#mark('double')
        label(this.#go, 'Upload again', this.name)
        label(this.#leave, 'Remove', this.name)
        const words = 'Not sent: a file with the same name, date and content is already in the list.'
        this.#write('stop', words)
        say(`${this.name}: ${words}`)
    }

    /** Stops it at once, and cancels it a few seconds later. */
    leave() {
        const { upload } = this
        // A failed one stays on the server, to be chosen again or discarded.
        if (['idle', 'done', 'failed'].includes(upload.state)) return this.#end()
        this.#wasPaused = upload.state === 'paused'
        leaving.add(this)
        upload.pause()
        queue.remove(upload)
        this.#mark('cancelled')
        this.#go.hidden = this.#now.hidden = true
        label(this.#leave, 'Undo', this.name)
        this.#write('stop', 'Cancelled.')
        say(`${this.name}: cancelled.`)
        this.#timer = setTimeout(() => {
            upload.cancel().finally(showPending)
            this.#end()
        }, UNDO)
        showTotal()
    }

    /** Takes the cancellation back. */
    stay() {
        clearTimeout(this.#timer)
        leaving.delete(this)
        this.start()
        if (this.#wasPaused) this.upload.pause()
    }

    #end() {
        leaving.delete(this)
        queue.remove(this.upload)
        items.delete(this.#key)
        takeAway(this.node)
        showTotal()
        showPending()
    }

    /** @param {string} state */
    #mark(state) { this.node.dataset.state = this.node.className = state }

    /** @param {string} symbol @param {string} words */
    #write(symbol, words) {
        if (this.#symbol !== symbol) this.#icon.replaceChildren(icon(symbol))
        this.#symbol = symbol
        if (this.#words.textContent !== words) this.#words.textContent = words
    }

    /** Shows progress, speed and the time until the next attempt as they are now. */
    show() {
        const { state, loaded, file: { size } } = this.upload
        this.#bar.value = size ? loaded : 1
        const received = `${bytes(loaded)} of ${bytes(size)} received`
        if (state === 'running') {
            if (loaded === size) this.#write('send', 'Sent. The server is processing the file…')
            else this.#write('send', received + pace(this.upload))
        } else if (state === 'waiting') {
            const left = (this.#next.time - performance.now()) / 1000
            const next = left < 1.5 ? 'Trying again…' : `Trying again in ${duration(left)}.`
            this.#write('wait', `${this.#next.message} ${next} ${received}.`)
        } else if (state === 'paused' && !leaving.has(this)) {
            this.#write('pause', `Paused, ${received}.`)
        }
    }

    /** @param {StateDetail} detail */
    #change(detail) {
        const { state } = detail
        // The pause of a cancellation.
        if (leaving.has(this)) return
        const had = document.activeElement
        this.#mark(state)
        label(this.#go, state === 'paused' ? 'Resume' : state === 'failed' ? 'Try again' : 'Pause', this.name)
        label(this.#leave, ['done', 'failed'].includes(state) ? 'Remove' : 'Cancel', this.name)
        this.#go.hidden = state === 'done'
        this.#now.hidden = detail.state !== 'waiting' || detail.delay < 1500
        if (had === this.#go && this.#go.hidden) this.#leave.focus()
        if (had === this.#now && this.#now.hidden) this.#go.focus()
        this.#more.hidden = true
        if (state === 'queued') this.#write('wait', 'Waiting in the queue.')
        if (detail.state === 'waiting') {
            this.#next = { time: performance.now() + detail.delay, message: detail.error.message }
            say(`${this.name}: ${detail.error.message}`)
        }
        this.show()
        if (detail.state === 'failed') {
            const { message, code, answer } = /** @type {import('./resumable-upload.js').UploadError} */ (detail.error)
            if (code === 'refused') this.#bar.value = this.#bar.max
            this.#write('fail', message)
            if (answer) this.#showAnswer(answer)
            say(`${this.name}: ${message}`)
        }
        if (detail.state === 'done') {
            const { reason, status } = detail.answer
            const words = status === 202 ? 'Accepted.' : 'Uploaded.'
            this.#write('done', reason ? `${words} ${reason}` : words)
            this.#showAnswer(detail.answer)
        }
        const word = { paused: 'paused', done: 'uploaded', running: 'uploading' }[/** @type {'done'} */ (state)]
        if (word) say(`${this.name}: ${word}.`)
        if (['running', 'done', 'failed'].includes(state)) showPending()
        tick()
    }

    /**
     * The whole answer, behind a line that opens it.
     * @param {Answer} answer
     */
    #showAnswer(answer) {
        let text = answer.text.trim()
        try {
            text = JSON.stringify(answer.json(), null, 2)
        } catch {
            // Not JSON.
        }
        if (!text || text === answer.reason) return
        this.#more.hidden = false
        const pre = make('pre', { textContent: text, tabIndex: 0, ariaLabel: `Response for ${this.name}` })
        pre.setAttribute('role', 'region')
        this.#more.replaceChildren(make('summary', { textContent: `Server response (${answer.status})` }), pre)
    }
}

// MARK: The lists

/**
 * A file, and where it is below the folder that was chosen or dropped.
 * @typedef {{file: File, path: string}} Found
 */

/**
 * @param {Found} found
 * @param {ResumableUpload} upload
 */
function add({ file, path }, upload) {
    // One that cannot be read fails in a row of its own.
    const key = upload.fingerprint ?? upload
    const same = items.get(key)
    if (same && leaving.has(same)) return same.stay()
    if (same?.upload.state === 'paused') return same.start()
    const isDouble = same && !['failed', 'cancelled'].includes(same.upload.state)
    if (isDouble) {
        // It waits for no lock of the first one's, and takes no part of it.
        const fingerprint = `${upload.fingerprint}|${Math.random()}`
        const again = new ResumableUpload(file, { endpoint, path, fingerprint, storage: null })
        const item = new Item(again, path, again)
        items.set(again, item)
        element('list').append(item.node)
        return item.showDouble()
    }
    const item = new Item(upload, path, key)
    if (same) queue.remove(same.upload)
    same?.node.remove()
    items.set(key, item)
    element('list').append(item.node)
    item.start()
}

/** @param {Iterable<File>} files */
const found = (files) => Array.from(files, (file) => ({ file, path: file.webkitRelativePath }))

/** @param {Found[]} files */
async function take(files) {
    // Many are read together, but not so many that they fill the memory.
    for (let place = 0; place < files.length; place += READ_TOGETHER) {
        const some = files.slice(place, place + READ_TOGETHER)
        const uploads = some.map(({ file, path }) => new ResumableUpload(file, { endpoint, path }))
        await Promise.all(uploads.map((upload) => upload.identify().catch(() => {})))
        for (const [index, upload] of uploads.entries()) add(some[index], upload)
        showTotal()
    }
    showPending()
}

/**
 * A row for what the browser could not open.
 * @param {string} path
 */
function showUnreadable(path) {
    const words = 'Not uploaded: it cannot be read.'
    const remove = make('button', { type: 'button' })
    label(remove, 'Remove', path)
    const node = make('li', { className: 'failed' },
        make('div', { className: 'row' }, title(path.slice(path.lastIndexOf('/') + 1), '', path),
            make('div', { className: 'buttons' }, remove)),
        make('p', { className: 'state' }, icon('fail'), make('span', { textContent: words })))
    node.dataset.state = 'failed'
    remove.onclick = () => {
        takeAway(node)
        showTotal()
    }
    element('list').append(node)
    showTotal()
    say(`${path}: ${words}`)
}

/** All uploads in one line. */
function summary(totals = queue.totals) {
    const { count, done, failed, loaded, total } = totals
    const doubles = [...items.values()].filter(({ upload }) => upload.state === 'idle').length
    const words = `${done} of ${count} finished, ${bytes(loaded)} of ${bytes(total)}${pace(totals)}`
    return words + (failed ? `, ${failed}\u00a0failed` : '') + (doubles ? `, ${doubles}\u00a0not sent` : '')
}

const pageTitle = document.title

function showTotal() {
    const { totals } = queue
    const { count, done, failed, paused, active, loaded, total } = totals
    const rows = element('list').children.length
    document.body.classList.toggle('busy', rows > 0)
    element('uploads').hidden = rows === 0
    element('total').textContent = items.size > 1 ? summary(totals) : ''
    const focus = document.activeElement
    const shown = {
        'pause-all': count > 1 && active > 0,
        'resume-all': count > 1 && paused > 0,
        'cancel-all': count > 1 && active + paused > 0,
        'undo-all': leaving.size > 1,
        clear: done > 0,
    }
    for (const [id, isShown] of Object.entries(shown)) element(id).hidden = !isShown
    // The keyboard does not get lost with a button.
    const all = element('all')
    if (focus?.matches('#all > [hidden]')) (all.querySelector('button:not([hidden])') ?? element('pick')).focus()
    const part = active ? `${total ? Math.floor(loaded / total * 100) : 0} %` : failed ? `${failed} failed` : ''
    document.title = part ? `${part} – ${pageTitle}` : pageTitle
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let ticking
/** Once a second while anything goes on: a speed changes by itself if nothing moves. */
function tick() {
    ticking ??= setTimeout(() => {
        ticking = undefined
        for (const item of items.values()) if (['running', 'waiting'].includes(item.upload.state)) item.show()
        showTotal()
        if (queue.totals.active) tick()
    }, 1000)
}

queue.onprogress = showTotal

function showPending() {
    /** @type {Pending[]} */
    let entries = []
    try {
        entries = ResumableUpload.pending()
            .filter((entry) => entry.endpoint === endpoint && !items.has(entry.fingerprint))
    } catch {
        // Storage that may not be read has none.
    }
    const list = element('pending')
    const known = new Map([...list.children].map((node) => [node.dataset.fingerprint, node]))
    for (const entry of entries) {
        if (!known.delete(entry.fingerprint)) list.append(pendingNode(entry))
    }
    for (const node of known.values()) takeAway(node)
    element('unfinished').hidden = entries.length === 0
}

/** @param {Pending} entry */
function pendingNode({ fingerprint, lock, url, name, path, size, loaded }) {
    const discard = make('button', { type: 'button' })
    label(discard, 'Discard', name)
    const received = `${bytes(loaded)} of ${bytes(size)} received`
    const words = make('span', { textContent: received })
    const symbol = make('span', {}, icon('pause'))
    const node = make('li', { className: 'paused' },
        make('div', { className: 'row' }, title(name, bytes(size), path),
            make('div', { className: 'buttons' }, discard)),
        make('progress', { max: size || 1, value: loaded, ariaLabel: `Progress of ${name}` }),
        make('p', { className: 'state' }, symbol, words))
    node.dataset.fingerprint = fingerprint
    /** @param {() => void} body */
    const exclusively = async (body) => {
        /** @param {unknown} held */
        const use = (held) => held ? body() : say(`${name} is being uploaded in another window.`)
        await (navigator.locks?.request(lock, { ifAvailable: true }, use) ?? use(true))
    }
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer
    const drop = () => {
        ResumableUpload.forget(fingerprint)
        showPending()
        // If this fails, the server discards it when it has expired.
        ResumableUpload.terminate(url).catch(() => {})
    }
    discard.onclick = () => {
        if (timer !== undefined) {
            clearTimeout(timer)
            timer = undefined
            label(discard, 'Discard', name)
            words.textContent = received
            symbol.replaceChildren(icon('pause'))
            return
        }
        exclusively(() => {
            // Clicked twice before the lock was there: one timer, which Undo stops.
            if (timer !== undefined) return
            label(discard, 'Undo', name)
            words.textContent = 'Discarded.'
            symbol.replaceChildren(icon('stop'))
            say(`${name}: discarded.`)
            // Unless it was chosen meanwhile.
            timer = setTimeout(() => { if (node.isConnected) exclusively(drop) }, UNDO)
        })
    }
    return node
}

// MARK: All uploads

const resting = () => [...items.values()].filter((item) => !['idle', 'done', 'failed'].includes(item.upload.state))

element('pause-all').onclick = () => queue.pauseAll()
element('resume-all').onclick = () => queue.resumeAll()
element('cancel-all').onclick = () => { for (const item of resting()) if (!leaving.has(item)) item.leave() }
element('undo-all').onclick = () => { for (const item of [...leaving]) item.stay() }
element('clear').onclick = () => {
    for (const [key, { upload, node }] of items) {
        if (!['idle', 'done'].includes(upload.state)) continue
        items.delete(key)
        queue.remove(upload)
        node.remove()
    }
    showTotal()
    say('Finished uploads were cleared.')
    ;(element('list').querySelector('button:not([hidden])') ?? element('pick')).focus()
}

// MARK: Where files come from

/**
 * The files of what was dropped, those in folders included. One that cannot be read does not take others with it.
 * @param {DataTransfer} transfer
 * @returns {Promise<Found[]>}
 */
async function dropped(transfer) {
    // The list is empty once the event is over.
    const files = found(transfer.files)
    /** @type {any[]} */
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean)
    if (!entries.some((entry) => entry.isDirectory)) return files
    /** @param {any} entry @returns {Promise<Found[]>} */
    const inside = async (entry) => {
        const path = entry.fullPath.slice(1)
        const all = []
        try {
            if (entry.isFile) {
                const file = await new Promise((resolve, reject) => entry.file(resolve, reject))
                // The same file may be chosen later, without a folder.
                return [{ file, path: path === file.name ? '' : path }]
            }
            const reader = entry.createReader()
            for (;;) {
                const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
                if (some.length === 0) break
                for (const one of some) all.push(...await inside(one))
            }
        } catch {
            showUnreadable(path)
        }
        return all
    }
    return (await Promise.all(entries.map(inside))).flat()
}

/** @param {DragEvent} event */
const carriesFiles = (event) => [...event.dataTransfer?.types ?? []].includes('Files')
/** @param {boolean} isOver */
const mark = (isOver) => document.body.classList.toggle('over', isOver)

// A file that misses the frame would otherwise take the page's place.
addEventListener('dragover', (event) => {
    if (!carriesFiles(event) || !event.dataTransfer) return
    event.preventDefault()
    event.dataTransfer.dropEffect = 'copy'
    mark(true)
})
addEventListener('dragleave', (event) => { if (!event.relatedTarget) mark(false) })
addEventListener('drop', async (event) => {
    if (!carriesFiles(event) || !event.dataTransfer) return
    event.preventDefault()
    mark(false)
    take(await dropped(event.dataTransfer))
})
document.addEventListener('paste', (event) => { if (event.clipboardData) take(found(event.clipboardData.files)) })

element('pick').onchange = () => {
    take(found(element('pick').files))
    // Or the same file, chosen again, would be no change.
    element('pick').value = ''
}
element('form').onsubmit = () => false

// Another window has begun, finished or discarded one.
addEventListener('storage', ({ key, oldValue, newValue }) => {
    if (key === null || (oldValue === null) !== (newValue === null)) showPending()
})
addEventListener('beforeunload', (event) => { if (queue.totals.active) event.preventDefault() })

if (!new ResumableUpload(new File([], '-'), { endpoint }).isRemembered) {
    element('memory').textContent =
        ' This browser stores nothing for this page: if you close or reload it, an upload begins anew.'
}
showPending()
