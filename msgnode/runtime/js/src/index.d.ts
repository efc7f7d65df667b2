/** Types of the runtime. Times are in milliseconds, sizes in bytes unless they say otherwise. */

export type MessageType =
  | "create" | "read" | "update" | "delete" | "subscribe" | "unsubscribe"
  | "response" | "forward" | "execute" | (string & {});

export interface Message<Body = any> {
  readonly id?: number | string;
  readonly type: MessageType;
  readonly from: string;
  readonly to: string;
  body?: Body;
  readonly [field: string]: any;
}

export interface Outgoing<Body = any> {
  readonly id?: number | string;
  readonly type: MessageType;
  readonly from: string;
  readonly to: string | readonly string[];
  body?: Body;
  readonly [field: string]: any;
}
export type Listener = (message: Message) => unknown;
export interface Item { remove(): void }
export interface ListenerItem extends Item { readonly url: string; readonly isActive: boolean }
export interface BusError { reason: string; error?: Error; message?: Message }

export interface Clock {
  now(): number;
  setTimeout(call: () => void, milliseconds: number): any;
  clearTimeout(timer: any): void;
}

export interface BusOptions { clock?: Clock; answerTime?: number; maxMessage?: number }

export class AnswerError extends Error {
  constructor(body: any, to: string);
  readonly code: number;
  readonly body: any;
}

export class LoadError extends Error {
  constructor(code: number, text: string);
  readonly code: number;
}

export abstract class Bus {
  readonly counters: Record<string, number>;
  addListener(url: string, listener: Listener): ListenerItem;
  removeAllListenersOf(url: string): void;
  listenersOf(url: string): readonly ListenerItem[];
  addResponseListener(url: string, id: number | string, onAnswer: Listener): void;
  removeResponseListener(url: string, id: number | string): void;
  /** Returns the message's id. Throws TypeError for what is no message. */
  postMessage(message: Outgoing, onAnswer?: Listener | null, options?: { timeout?: boolean }): number | string;
  /** Resolves with the body of the final answer, rejects with an AnswerError. */
  request<Answer = any>(message: Outgoing): Promise<Answer & { code: number }>;
  postMessageWithRetries(message: Outgoing, retries: number, onAnswer: Listener): number | string;
  bind(outUrl: string, inUrl: string, target: Bus): { thisListener: Item; targetListener: Item; unbind(): void };
  onError(listener: (error: BusError) => void): void;
  /** `ending` is called when the bus closes. */
  onClose(ending: () => void): Item;
  close(): void;
}

export class MiniBus extends Bus {
  constructor(out: (message: Message) => void, options?: BusOptions);
  receive(message: Message): void;
}

/** What a handler of a pipeline may return instead of the message. */
export interface Refused { code: number; desc?: string; description?: string }
export type HandlerResult = Message | Refused | null | undefined | false | void;
export type Handler = (
  message: Message,
  context: { direction: "in" | "out"; via?: string },
) => HandlerResult | Promise<HandlerResult>;

export class Pipeline {
  readonly direction: "in" | "out";
  readonly isEmpty: boolean;
  use(handler: Handler): Item;
}

export class MessageBus extends Bus {
  constructor(runtimeURL: string, options?: BusOptions & { handlerTime?: number });
  readonly runtimeURL: string;
  readonly pipelineOut: Pipeline;
  readonly pipelineIn: Pipeline;
  resolver: { route(message: Message): string | undefined } | null;
  addPublish(address: string): Item;
  addForward(from: string, to: string): Item;
  isLocal(address: string): boolean;
}

export type StubStatus =
  | "deploying" | "deployed" | "deployment-failed"
  | "created" | "in-progress" | "live" | "disconnected" | "failed";

export interface StubEntry {
  readonly key: string;
  readonly domain: string;
  readonly kind: "domain" | "idp" | "legacy";
  readonly url: string;
  readonly status: StubStatus;
  readonly desc: string;
  readonly descriptor: Descriptor | null;
  readonly digest: string;
  readonly failures: number;
  readonly retryAt: number;
}

export class StubList implements Iterable<StubEntry> {
  get(key: string): StubEntry | undefined;
  [Symbol.iterator](): Iterator<StubEntry>;
}

export interface Descriptor {
  cguid: string;
  version: string;
  objectName: string;
  interworking: boolean;
  constraints: Record<string, true>;
  configuration: Record<string, any>;
  source: string | null;
  sourceURL: string;
  integrity: string;
  signature: string;
}

export interface DescriptorContext {
  domain: string;
  url: string;
  platform: "browser" | "node";
  kind?: "PROTOSTUB" | "IDP_PROXY";
  capabilities?: string[];
  hosts?: string[];
}

/** Throws LoadError, whose text begins with the name of the field that is wrong. */
export function checkDescriptor(raw: unknown, context: DescriptorContext): Descriptor;

/** Asks catalogues. Throws LoadError. */
export class Catalogue {
  constructor(home: string, options?: Pick<RuntimeOptions, "catalogues" | "fetch" | "fetchTime" | "clock"> & { platform?: "browser" | "node" });
  readonly home: string;
  baseOf(domain: string): string;
  descriptors(domain: string, kind?: "PROTOSTUB" | "IDP_PROXY"): AsyncIterable<{ raw: unknown; url: string }>;
  source(url: string): Promise<string>;
  version(descriptorURL: string): Promise<string | undefined>;
  close(): void;
}

/** Loads, connects and unloads stubs; a Runtime has one. */
export class Loader {
  constructor(parts: { bus: MessageBus; catalogue: Catalogue; sandboxes: any; stubs: StubList }, options: Record<string, any>);
  readonly loads: number;
  load(entry: StubEntry): Promise<void>;
  connect(entry: StubEntry, ...identity: any[]): Promise<unknown> | undefined;
  unload(entry: StubEntry, text?: string): Promise<void>;
  close(): Promise<void>;
}

/** Names the stub that reaches an address; a Runtime has one. */
export class Resolver {
  constructor(bus: MessageBus, loader: Loader, stubs: StubList, options: Record<string, any>);
  peers: { route(message: Message, via?: string): string | null | undefined } | null;
  route(message: Message, via?: string): string | undefined;
}

export interface Limits {
  startTime?: number; deleteTime?: number; pingEvery?: number; readTime?: number;
  /** characters */
  maxUnread?: number;
  /** messages a second */
  rate?: number;
  /** characters a second */
  rateBytes?: number;
  /** MiB, in Node.js */
  memory?: number;
}

export interface Times {
  loadTime?: number; leastRetry?: number; mostRetry?: number; leastRestart?: number; mostRestart?: number;
  idleHome?: number; idleAbroad?: number; versionEvery?: number; switchTime?: number;
}

/** Direct connections to other runtimes; off unless they are given. */
export interface P2POptions {
  /** None are built in. */
  iceServers?: IceServer[];
  /** Show nobody an address of this device; needs a TURN server. */
  relayOnly?: boolean;
  /** Ask the domain's QoS broker for TURN servers, for each connection. */
  reserve?: boolean;
  /** Whether channels to runtimes with the field's P2P stubs are set up, too; true. */
  fieldPeers?: boolean;
  /** By which code: this package's, or the stubs in the home domain's catalogue; "built-in". */
  stubs?: "built-in" | "catalogue";
  /** Kept in `storage` if it is left out. */
  handlerId?: string;
  timers?: {
    answer?: number; gather?: number; setUp?: number; quarantine?: number; fence?: number; refence?: number; resume?: number; ack?: number;
    ping?: number; dead?: number; idle?: number; forget?: number; linger?: number;
    /** Counts, and characters. */
    keepEpochs?: number; window?: number; windowSize?: number; heldSize?: number; inbox?: number; peers?: number;
  };
}

export interface P2PConnection {
  /** The other's URL. */
  runtime: string;
  /** Ours, whose `/status` tells of it. */
  stub: string;
  /** The last that was told. */
  state: "" | "created" | "in-progress" | "live" | "disconnected" | "failed" | "ended";
  /** Of what is sent now. */
  way: "node" | "fencing" | "channel" | "resuming";
}

/** A runtime's direct connections. */
export interface PeerToPeer {
  readonly handler: string;
  /** What registrations of this runtime's hyperties say besides. */
  readonly registration: { p2pHandler: string; p2pRequester: string };
  /** An entry for each other runtime that there is, or was lately, a connection with. */
  readonly connections: readonly P2PConnection[];
}

/** Such as `localStorage`. */
export interface TextStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem?(key: string): void;
}

/** The global function `fetch`, or one like it. */
export type Fetch = (url: string, options?: any) => Promise<any>;

/** A public key as a JWK (P-256). */
export interface PublicKey { kty?: string; crv?: string; x?: string; y?: string; [field: string]: any }

export interface RuntimeOptions extends BusOptions {
  domain: string;
  runtimeURL?: string;
  storage?: TextStorage;
  catalogues?: Record<string, string>;
  /** Base URLs of registries that are asked over REST instead of by messages, by domain. */
  registries?: Record<string, string>;
  /** API keys for them, by domain. */
  registryKeys?: Record<string, string>;
  hosts?: Record<string, string[]>;
  digests?: Record<string, string>;
  signers?: Record<string, PublicKey[]>;
  routing?: Record<string, "stub" | "node" | "stub-else-node">;
  interworking?: string[];
  capabilities?: string[];
  stubConfig?: Record<string, Record<string, any>>;
  sandbox?: "own" | "all";
  isolation?: "best-effort" | "required";
  /** A path of the page's node, or a URL; with a `*` in its host each sandbox has a process of its own */
  sandboxPage?: string;
  WebSocket?: any;
  p2p?: P2POptions;
  /** Instead of the global class. */
  RTCPeerConnection?: any;
  fetch?: Fetch;
  fetchTime?: number;
  handlerTime?: number;
  /** true: a line for each decision about a message, on the console; a function gets the lines. */
  debug?: boolean | ((line: string) => unknown);
  limits?: Limits;
  times?: Times;
}

/** What addHyperty() makes: nobody outside knows it. */
export interface BareHyperty {
  readonly url: string;
  readonly runtimeURL: string;
  readonly bus: MiniBus;
  listen(address: string): Item;
  remove(): void;
}

/** Throw it in a handler: who has asked gets this code and text. */
export class Refusal extends Error {
  constructor(code: number, text: string);
  readonly code: number;
}

/** What it returns, or resolves with, is the `value` of the answer. */
export type RequestHandler = (value: any, message: Message) => unknown;
export type HandledType =
  | "create" | "read" | "update" | "delete" | "subscribe" | "unsubscribe" | "execute" | "*";

export interface HypertyOptions {
  /** For all types of messages, or by type. */
  handlers?: RequestHandler | Partial<Record<HandledType, RequestHandler>>;
  /** true (as who is logged in), false, or the user to register it for: a name, an e-mail address or a user URL. */
  register?: boolean | string;
  /** What it offers, such as "chat". */
  resources?: string[];
  /** Schemes of its data objects, such as "comm". */
  dataSchemes?: string[];
  /** Ask for channels to those it talks with. */
  p2p?: boolean;
  /** An address of one's own; else one is kept in the storage by the name. */
  url?: string;
}

export interface SendOptions { type?: MessageType; p2p?: boolean }

/** A hyperty that others reach; made by runtime.hyperty(). A Syncher takes it. */
export class Hyperty {
  private constructor();
  readonly name: string;
  readonly url: string;
  readonly runtimeURL: string;
  readonly bus: MiniBus;
  /** Resolves with the `value` of the answer, rejects with an AnswerError that says which step failed. */
  request<Value = any>(to: string, value?: any, options?: SendOptions): Promise<Value>;
  send(to: string, value?: any, options?: SendOptions): void;
  on(type: HandledType, handler: RequestHandler): Item;
  close(): Promise<void>;
}

/** What a runtime does about an address, and how a message would get there. */
export interface Explanation {
  address: string;
  isHere: boolean;
  /** null for what is not this runtime's. */
  isClaimed: boolean | null;
  isRegistered: boolean | null;
  stub: { url: string; status: StubStatus; desc: string } | null;
  way: "here" | "channel" | "fencing" | "resuming" | "node" | "none";
  why: string;
}

/** What `reserve` takes; one of `mediaTypes`, `flows` and `class` is needed. */
export interface QosOrder {
  mediaTypes?: string[];
  flows?: { mediaType: string; [field: string]: any }[];
  class?: string;
  /** bits per second */
  bitrate?: number;
  seconds?: number;
  cspId?: string;
  clientName?: string;
  sessionId?: string;
  /** The access network of each end. */
  near?: string[];
  /** Renew it until it is released; true if it is left out. */
  keep?: boolean;
  /** Another domain's broker. */
  domain?: string;
}

export interface IceServer { urls: string | string[]; username?: string; credential?: string }
export interface IceConfiguration { iceServers: IceServer[]; iceTransportPolicy?: "all" | "relay" }
export interface QosEnd { status: "released" | "exceeded" | "lost" | "ended" | (string & {}); reason: string }

export interface Reservation {
  readonly id: string;
  readonly domain: string;
  readonly class: string;
  readonly bitrate: number;
  readonly expires: string;
  /** For RTCPeerConnection; after a renewal it has the new credential. */
  readonly configuration: IceConfiguration;
  readonly ended: QosEnd | undefined;
  onEnded(listener: (end: QosEnd) => void): void;
  read(): Promise<any>;
  renew(seconds?: number): Promise<void>;
  release(): Promise<void>;
}

/** Quality of service: a Runtime has one. What is refused rejects with an AnswerError. */
export interface Qos {
  inquire(criteria?: { mediaTypes?: string[]; cspId?: string; near?: string[]; domain?: string }): Promise<any>;
  reserve(order: QosOrder): Promise<Reservation>;
  reservations(domain?: string): Promise<any[]>;
  iceServers(order?: QosOrder, fallback?: IceServer[]): Promise<{
    configuration: IceConfiguration;
    reservation: Reservation | null;
    error: AnswerError | null;
    release(): Promise<void>;
  }>;
}

export class CardError extends Error {
  constructor(code: number, text: string);
  readonly code: number;
}

/** What a user's domain asserts of him. */
export interface Card {
  readonly userURL: string;
  readonly domain: string;
  /** Where he is invited, "" if no runtime of his asks for that. */
  readonly endpoint: string;
  /** What of his may be called directly, "" if he names none. */
  readonly hyperty: string;
  readonly protostub: string;
  readonly digests: readonly string[];
  /** Seconds since 1970. */
  readonly expires: number;
  readonly claims: Readonly<Record<string, any>>;
}

/** Somebody of another domain invites; his domain has signed it. */
export interface Invitation {
  readonly user: string;
  readonly domain: string;
  /** Where he is to be answered: a `create` with this `invitation` in its value. */
  readonly hyperty: string;
  readonly invitation: string;
  /** Seconds since 1970. */
  readonly expires: number;
  readonly resource?: string;
}

/** Conversations that the caller hosts. What the home node refuses rejects with an AnswerError. */
export interface Invitations {
  /** `withdrawn` hears of an invitation that its caller withdraws before it expires. */
  receive(
    listener: (invitation: Invitation) => unknown,
    options?: { hyperty?: string; withdrawn?: (invitation: Invitation) => unknown },
  ): Promise<{
    endpoint: string;
    userURL: string;
    expires: number;
  }>;
  stop(): Promise<void>;
  /** Rejects with a CardError as well: 404 he has no card, 410 it names no endpoint. */
  send(user: string | Card, order: { hyperty: string; seconds?: number; resource?: string; stay?: number }): Promise<{
    invitation: string;
    expires: number;
    /** True once, before it expires. */
    isAcceptedBy(message: Message): boolean;
    /** Whether the callee's node has taken note. Rejects with a CardError 409 once it is accepted. */
    withdraw(): Promise<boolean>;
    /** Who has accepted it is a guest of the node no longer, and nobody can accept it any more. */
    end(): Promise<void>;
    /** Who has accepted it is a guest no longer, and somebody else may accept it; 410 once it has expired. */
    reopen(): Promise<void>;
  }>;
}

/** Somebody in the address book. */
export interface Contact {
  readonly guid: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly groups: readonly string[];
  /** Of the newest record seen, ISO 8601; "" if none was. */
  readonly lastUpdate: string;
}

/** The address book; what is refused throws a GraphError. */
export interface Contacts extends Iterable<Contact> {
  readonly size: number;
  [Symbol.iterator](): Iterator<Contact>;
  get(guid: string): Contact | undefined;
  find(text: string): Contact[];
  add(guid: string, names?: { firstName?: string; lastName?: string; groups?: string[] }): Contact;
  edit(guid: string, changes: { firstName?: string; lastName?: string; groups?: string[] }): Contact;
  remove(guid: string): boolean;
}

export class GraphError extends Error {
  constructor(code: number, text: string);
  readonly code: number;
}

export interface UserId {
  readonly uid: string;
  readonly domain: string;
}

/** What a record that has proved genuine says of a person; what somebody says of himself is his word. */
export interface Person {
  readonly guid: string;
  readonly userIds: readonly UserId[];
  readonly legacyIds: readonly any[];
  readonly defaults: { readonly voice: string; readonly chat: string; readonly video: string };
  readonly lastUpdate: Date;
  readonly timeout: Date;
  readonly isActive: boolean;
  readonly isRevoked: boolean;
}

/** A GUID of one's own, the global registry, contacts: a Runtime has one. Rejects with a GraphError. */
export interface GraphConnector {
  readonly url: string;
  readonly guid: string;
  readonly person: Person | null;
  readonly contacts: Contacts;
  create(): Promise<string>;
  use(words: string): Promise<boolean>;
  addUserId(uid: string, domain?: string): void;
  removeUserId(uid: string): void;
  addLegacyId(id: { type: string; category: string; id: string; description?: string }): void;
  removeLegacyId(id: string): void;
  setDefaults(defaults: { voice?: string; chat?: string; video?: string }): void;
  setActive(isActive: boolean): void;
  publish(): Promise<Person>;
  revoke(): Promise<void>;
  lookup(guid: string): Promise<Person>;
  hyperties(guid: string, criteria?: { resources?: string[]; dataSchemes?: string[] }): Promise<
    { userId: UserId; code: number; text: string; hyperties: any[] }[]
  >;
}

/** A token that the application has got itself, or what an identity module of the field gives. */
export type Identity =
  | { accessToken: string }
  | { idToken: string }
  | { assertion: string; idp?: string | { domain: string; [field: string]: any }; userProfile?: Record<string, any> };

/** Gives tokens, and newer ones before they end. Times are in milliseconds since 1970. */
export interface TokenSource {
  token(): Promise<{ token: string; expires?: number }>;
  renew?(): Promise<{ token: string; expires: number }>;
  logOut?(): Promise<unknown>;
}

export interface IdentityEvent {
  state: "logged-in" | "renewed" | "expired" | "failed" | "logged-out";
  /** The user URL. */
  user: string;
  expires?: number;
  error?: Error;
}

/** What there is in a runtime now. */
export interface RuntimeState {
  runtime: string;
  domain: string;
  user: string;
  hyperties: { name: string; url: string; isRegistered: boolean }[];
  /** A stub each; `claims`: the addresses that its node holds for this runtime. */
  routes: {
    to: string;
    domain: string;
    stub: string;
    status: string;
    desc: string;
    version: string;
    waiting: number;
    unanswered: number;
    claims: string[];
  }[];
  sandboxes: { name: string; components: string[] }[];
  channels: { runtime: string; stub: string; state: string; way: string }[];
  /** "" where there may be some. */
  whyNoChannels: string;
  /** The last 20, the newest last; the reason is that of a counter, or `answer.<code>`. */
  errors: { at: string; reason: string; text: string }[];
  counters: Record<string, number>;
}

export class Runtime {
  constructor(options: RuntimeOptions);
  /** Of this package. */
  readonly version: string;
  readonly url: string;
  readonly domain: string;
  readonly bus: MessageBus;
  readonly stubs: StubList;
  readonly catalogue: Catalogue;
  readonly resolver: Resolver;
  readonly qos: Qos;
  /** There from logIn() on, if it is asked for and the platform has WebRTC; else null. */
  readonly p2p: PeerToPeer | null;
  readonly invitations: Invitations;
  /** Its code is loaded when it is first asked for. */
  readonly graph: Promise<GraphConnector>;
  /** Rejects with a CardError. */
  cardOf(user: string): Promise<Card>;
  readonly counters: Record<string, number>;
  /** Rejects with a TypeError, an OpenIdError, a LoadError, or an AnswerError of the node. */
  logIn(identity?: Identity | TokenSource): Promise<StubEntry>;
  logOut(): Promise<void>;
  onIdentity(listener: (event: IdentityEvent) => unknown): Item;
  connect(domain: string, identity?: any): Promise<StubEntry>;
  renew(domain: string): Promise<void>;
  /** A hyperty that others can reach. Rejects with a TypeError or an AnswerError. */
  hyperty(name: string, options?: HypertyOptions): Promise<Hyperty>;
  /** The addresses of a user's hyperties that can be reached now. */
  find(criteria: { user: string; resources?: string[]; dataSchemes?: string[] }): Promise<string[]>;
  explain(address: string, from?: string): Explanation;
  state(): RuntimeState;
  /** The user URL of who is logged in, "" for nobody. */
  readonly user: string;
  addHyperty(url?: string): BareHyperty;
  deployHyperty(sourceCode: string, config?: Record<string, any>, url?: string): Promise<{ url: string; remove(): Promise<void> }>;
  close(): Promise<void>;
}

export function newId(): string;
export function answerTo(request: Message, body: any): Message;
export function errorBody(code: number, text: string): { code: number; desc: string; description: string };
export function codeOf(body: any): number;
