// The page: files come in by choice, drop or paste; each is one item of the list with its progress and buttons.
//
// Text comes from file names and servers, and becomes text alone (textContent). The live region says changes of
// states, never progress.

import { ResumableUpload, UploadQueue } from './resumable-upload.js'

const element = (id) => document.getElementById(id)
const endpoint = new URL(element('page').dataset.endpoint, document.baseURI).href
const queue = new UploadQueue(3)
/** Every file of the list, by what its upload is remembered by. @type {Map<string, Item>} */
const items = new Map()

// MARK: Words

/** With a space that does not break. */
function bytes(count) {
    for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
        if (count >= size * 0.9995) return `${(count / size).toFixed(count < size * 99.95 ? 1 : 0)}\u00a0${unit}`
    }
    return count === 1 ? '1\u00a0byte' : `${count}\u00a0bytes`
}

function duration(seconds) {
    if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`
    return `${(seconds / 3600).toFixed(1)} h`
}

/** Says states to those who do not see them; what comes within a moment is said together. */
const say = (() => {
    let sentences = []
    return (sentence) => {
        if (sentences.push(sentence) > 1) return
        setTimeout(() => {
            element('live').textContent = sentences.join(' ')
            sentences = []
        }, 300)
    }
})()

// MARK: Elements

function make(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties)
    made.append(...children)
    return made
}

function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    const use = document.createElementNS('http://www.w3.org/2000/svg', 'use')
    use.setAttribute('href', '#' + name)
    svg.setAttribute('class', 'icon')
    svg.setAttribute('aria-hidden', 'true')
    svg.append(use)
    return svg
}

/** A button whose name for those who do not see its place has the file's name. */
function label(button, text, name) {
    button.textContent = text
    button.ariaLabel = `${text} ${name}`
}

/** Takes an item of a list away; the keyboard stays near where it was. */
function takeAway(node, next = node.nextElementSibling ?? node.previousElementSibling) {
    const hadFocus = node.contains(document.activeElement)
    node.remove()
    if (hadFocus) (next?.querySelector('button:not([hidden])') ?? element('pick')).focus()
}

// MARK: One file

/** How fast bytes arrive, over the last ten seconds. */
class Pace {
    #samples = []

    add(count) {
        const now = performance.now()
        this.#samples.push({ now, count })
        while (now - this.#samples[0].now > 10000) this.#samples.shift()
    }

    reset() { this.#samples = [] }

    /** Bytes a second; undefined until there is something to go by. */
    get rate() {
        const first = this.#samples[0]
        const last = this.#samples.at(-1)
        if (!first || last.now - first.now < 1000 || last.count <= first.count) return undefined
        return (last.count - first.count) / (last.now - first.now) * 1000
    }
}

class Item {
    #pace = new Pace()
    #bar = make('progress')
    #words = make('span')
    #icon = make('span')
    #go = make('button', { type: 'button' })
    #leave = make('button', { type: 'button' })
    #now = make('button', { type: 'button', hidden: true })
    #timer
    #more = make('details', { hidden: true })

    constructor(upload) {
        this.upload = upload
        const { file } = upload
        const name = make('span', { className: 'name' }, make('bdi', { textContent: file.name }), ' ',
            make('span', { className: 'size', textContent: bytes(file.size) }))
        this.#bar.max = file.size || 1
        this.#bar.value = upload.loaded
        this.#bar.ariaLabel = `Progress of ${file.name}`
        this.#go.onclick = () => this.#isStopped ? this.start() : upload.pause()
        this.#leave.onclick = () => this.remove()
        this.#now.onclick = () => upload.retryNow()
        label(this.#now, 'Try now', file.name)
        this.node = make('li', {},
            make('div', { className: 'row' }, name,
                make('div', { className: 'buttons' }, this.#now, this.#go, this.#leave)),
            this.#bar,
            make('p', { className: 'state' }, this.#icon, this.#words),
            this.#more)
        upload.onprogress = ({ detail }) => this.#proceed(detail)
        upload.onstate = ({ detail }) => this.#change(detail)
    }

    get #isStopped() { return ['paused', 'failed'].includes(this.upload.state) }

    start() {
        // What became of it, the states tell.
        queue.add(this.upload).catch(() => {})
    }

    /** Takes it off the list, and what is unfinished off the server. */
    remove() {
        const { upload } = this
        // What failed stays where it is, to be chosen again or discarded.
        if (!['done', 'failed'].includes(upload.state)) upload.cancel().finally(showPending)
        items.delete(upload.fingerprint)
        takeAway(this.node)
        if (upload.state === 'cancelled') say(`${upload.file.name}: cancelled.`)
        showTotal()
        showPending()
    }

    #show(symbol, words) {
        this.#icon.replaceChildren(icon(symbol))
        this.#words.textContent = words
    }

    #proceed({ loaded, total }) {
        this.#bar.value = total ? loaded : 1
        showTotal()
        if (this.upload.state !== 'running') return
        this.#pace.add(loaded)
        if (loaded === total) return this.#show('send', 'All sent. The server works on it…')
        const { rate } = this.#pace
        const speed = rate ? `, ${bytes(rate)}/s, ${duration((total - loaded) / rate)} left` : ''
        this.#show('send', `${bytes(loaded)} of ${bytes(total)} received${speed}`)
    }

    #change({ state, error, delay, offline, answer }) {
        const { name } = this.upload.file
        const had = document.activeElement
        clearTimeout(this.#timer)
        this.#now.hidden = true
        this.node.className = state
        this.node.dataset.state = state
        this.#pace.reset()
        label(this.#go, { paused: 'Resume', failed: 'Try again' }[state] ?? 'Pause', name)
        label(this.#leave, { done: 'Remove', failed: 'Remove' }[state] ?? 'Cancel', name)
        this.#go.hidden = state === 'done'
        if (had === this.#go && this.#go.hidden) this.#leave.focus()
        if (had === this.#now) this.#go.focus()
        this.#more.hidden = true
        if (state === 'queued') this.#show('wait', 'Waits for its turn.')
        if (state === 'running') this.#show('send', this.upload.loaded ? 'Goes on…' : 'Begins…')
        if (state === 'paused') this.#pauseShown()
        if (state === 'waiting') {
            this.#now.hidden = delay < 1500
            this.#countDown(error.message, offline ? undefined : performance.now() + delay)
        }
        if (state === 'failed') {
            if (error.code === 'refused') this.#bar.value = this.#bar.max
            this.#show('fail', error.message)
            if (error.answer) this.#showAnswer(error.answer)
        }
        if (state === 'done') {
            this.#show('done', this.#success(answer))
            this.#showAnswer(answer)
        }
        this.#tell(state, error)
        showTotal()
        if (state === 'done' || state === 'failed') showPending()
    }

    /** Says once a second when the next attempt begins, and all the while how much the server has. */
    #countDown(message, end) {
        const { loaded, file } = this.upload
        const left = Math.round((end - performance.now()) / 1000)
        const next = end === undefined ? 'It goes on by itself when the network is back.'
            : left < 2 ? 'Trying again.' : `Trying again in ${left} s.`
        this.#show('wait', `${message} ${next} ${bytes(loaded)} of ${bytes(file.size)} received.`)
        if (left >= 2) this.#timer = setTimeout(() => this.#countDown(message, end), 1000)
    }

    #pauseShown() {
        const { loaded, file } = this.upload
        this.#show('pause', `Paused, ${bytes(loaded)} of ${bytes(file.size)} received.`)
    }

    #success(answer) {
        const words = answer.status === 202 ? 'Accepted.' : 'Uploaded.'
        return answer.reason ? `${words} ${answer.reason}` : words
    }

    /** The whole answer, behind a line that opens it. */
    #showAnswer(answer) {
        let text = answer.text.trim()
        try {
            text = JSON.stringify(answer.json(), null, 2)
        } catch {
            // Not JSON.
        }
        if (!text || text === answer.reason) return
        this.#more.hidden = false
        this.#more.replaceChildren(
            make('summary', { textContent: `The server's answer (${answer.status})` }),
            make('pre', { textContent: text, tabIndex: 0, ariaLabel: `Answer for ${this.upload.file.name}` }))
        this.#more.lastChild.setAttribute('role', 'region')
    }

    #tell(state, error) {
        const { name } = this.upload.file
        const words = { paused: 'paused.', done: 'uploaded.', running: 'uploading.' }[state]
        if (state === 'waiting' || state === 'failed') say(`${name}: ${error.message}`)
        else if (words) say(`${name}: ${words}`)
    }
}

// MARK: The lists

function add(file) {
    const upload = new ResumableUpload(file, { endpoint })
    const same = items.get(upload.fingerprint)
    if (same && !['done', 'failed', 'cancelled'].includes(same.upload.state)) {
        if (same.upload.state === 'paused') same.start()
        else say(`${file.name} is in the list already.`)
        return
    }
    const item = new Item(upload)
    same?.node.remove()
    items.set(upload.fingerprint, item)
    element('list').append(item.node)
    item.start()
}

function take(files) {
    for (const file of files) add(file)
    showTotalNow()
    showPending()
}

const totalPace = new Pace()
const title = document.title
let totalTimer

/** Soon: progress comes often, and each time the whole list counts. */
function showTotal() { totalTimer ??= setTimeout(showTotalNow, 200) }

function showTotalNow() {
    clearTimeout(totalTimer)
    totalTimer = undefined
    const uploads = [...items.values()].map((item) => item.upload)
    const inState = (...states) => uploads.filter(({ state }) => states.includes(state))
    const done = inState('done')
    const active = inState('queued', 'running', 'waiting')
    const stopped = inState('paused', 'failed')
    document.body.classList.toggle('busy', uploads.length > 0)
    element('uploads').hidden = uploads.length === 0
    element('clear').hidden = done.length === 0
    element('pause-all').hidden = active.length < 2
    element('resume-all').hidden = stopped.length < 2
    element('cancel-all').hidden = active.length + inState('paused').length < 2
    const sum = (some, count) => some.reduce((total, upload) => total + count(upload), 0)
    const total = sum(uploads, ({ file }) => file.size)
    const loaded = sum(uploads, ({ state, file, loaded }) => state === 'done' ? file.size : loaded)
    const left = sum(active, ({ file, loaded }) => file.size - loaded)
    const isRunning = inState('running').length > 0
    if (isRunning) totalPace.add(loaded)
    else totalPace.reset()
    const failed = inState('failed').length
    const parts = [`${done.length} of ${uploads.length} finished`]
    if (failed) parts.push(`${failed} failed`)
    parts.push(`${bytes(loaded)} of ${bytes(total)}`)
    const { rate } = totalPace
    if (rate && isRunning) parts.push(`${bytes(rate)}/s`, `${duration(left / rate)} left`)
    element('total').textContent = uploads.length < 2 ? '' : parts.join(', ')
    document.title = active.length && total ? `${Math.floor(loaded / total * 100)} % – ${title}` : title
}

function showPending() {
    const entries = ResumableUpload.pending()
        .filter((entry) => entry.endpoint === endpoint && !items.has(entry.fingerprint))
    const list = element('pending')
    const known = new Map([...list.children].map((node) => [node.dataset.fingerprint, node]))
    for (const entry of entries) {
        if (!known.delete(entry.fingerprint)) list.append(pendingNode(entry))
    }
    for (const node of known.values()) takeAway(node)
    element('unfinished').hidden = entries.length === 0
}

function pendingNode({ fingerprint, lock, url, name, size, loaded }) {
    const discard = make('button', { type: 'button' })
    label(discard, 'Discard', name)
    const node = make('li', {},
        make('div', { className: 'row' },
            make('span', { className: 'name' }, make('bdi', { textContent: name })),
            make('div', { className: 'buttons' }, discard)),
        make('progress', { max: size || 1, value: loaded, ariaLabel: `Progress of ${name}` }),
        make('p', { className: 'state' }, icon('pause'),
            make('span', { textContent: `${bytes(loaded)} of ${bytes(size)} received` })))
    node.className = 'paused'
    node.dataset.fingerprint = fingerprint
    const drop = async (held) => {
        if (!held) return say(`${name} is being sent in another window.`)
        ResumableUpload.forget(fingerprint)
        say(`${name}: discarded.`)
        showPending()
        // Where this fails, the server discards it when it has expired.
        await fetch(url, { method: 'DELETE' }).catch(() => {})
    }
    discard.onclick = () => {
        if (navigator.locks) navigator.locks.request(lock, { ifAvailable: true }, drop)
        else drop(true)
    }
    return node
}

// MARK: Where files come from

/** The files of what was dropped, those in folders included. */
async function dropped(transfer) {
    // The list is empty once the event is over.
    const files = [...transfer.files]
    const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean)
    if (!entries.some((entry) => entry.isDirectory)) return files
    const inside = async (entry) => {
        if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))]
        const reader = entry.createReader()
        const found = []
        for (;;) {
            const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
            if (some.length === 0) return found
            for (const one of some) found.push(...await inside(one))
        }
    }
    return (await Promise.all(entries.map((entry) => inside(entry).catch(() => [])))).flat()
}

const carriesFiles = (event) => [...event.dataTransfer?.types ?? []].includes('Files')
const mark = (isOver) => document.body.classList.toggle('over', isOver)

// A file that misses the frame would otherwise take the page's place.
addEventListener('dragover', (event) => {
    if (!carriesFiles(event)) return
    event.preventDefault()
    event.dataTransfer.dropEffect = 'copy'
    mark(true)
})
addEventListener('dragleave', (event) => { if (!event.relatedTarget) mark(false) })
addEventListener('drop', async (event) => {
    if (!carriesFiles(event)) return
    event.preventDefault()
    mark(false)
    take(await dropped(event.dataTransfer))
})
addEventListener('paste', (event) => { if (event.clipboardData) take(event.clipboardData.files) })

element('pick').onchange = () => {
    take([...element('pick').files])
    // Or the same file, chosen again, would be no change.
    element('pick').value = ''
}

/** Does it to each item in some states; the keyboard stays in the list if the button goes. */
function forAll(button, states, act) {
    element(button).onclick = () => {
        for (const item of [...items.values()]) if (states.includes(item.upload.state)) act(item)
        showTotalNow()
        if (element(button).hidden) focusList()
    }
}

const focusList = () => (element('list').querySelector('button:not([hidden])') ?? element('pick')).focus()

forAll('pause-all', ['queued', 'running', 'waiting'], (item) => item.upload.pause())
forAll('resume-all', ['paused', 'failed'], (item) => item.start())
forAll('cancel-all', ['queued', 'running', 'waiting', 'paused'], (item) => item.remove())

element('clear').onclick = () => {
    for (const [fingerprint, { upload, node }] of items) {
        if (upload.state !== 'done') continue
        items.delete(fingerprint)
        node.remove()
    }
    showTotalNow()
    say('Finished uploads are cleared.')
    focusList()
}

// Another window has begun, finished or discarded one.
addEventListener('storage', showPending)
addEventListener('beforeunload', (event) => {
    const isSending = [...items.values()].some(({ upload }) => ['running', 'waiting'].includes(upload.state))
    if (isSending) event.preventDefault()
})

showPending()
