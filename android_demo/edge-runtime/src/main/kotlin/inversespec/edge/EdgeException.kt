package inversespec.edge

import java.io.File

/**
 * Base class of all errors of this library; subclasses are named as in the Python runtime, with Exception for
 * Error.
 *
 * Each message states what was expected, what was found, where, and the remedy: it may be shown to a user.
 */
sealed class EdgeException(message: String, cause: Throwable? = null) : Exception(message, cause)

/** Invalid arguments: an option, a missing prompt, an answer too long. */
open class UsageException(message: String) : EdgeException(message)

/** Prompt, anchors or requested tokens exceed the model's context. */
class ContextException(message: String) : UsageException(message)

/** The model could not be loaded or run. */
class EngineException(message: String, cause: Throwable? = null) : EdgeException(message, cause)

/** The service cannot be reached, does not answer in time, or something else answers in its place. */
class CloudUnavailableException(message: String) : EdgeException(message)

/** A file of a session is none, or is damaged. */
class SessionFileException(message: String) : EdgeException(message)

/** The service refuses the request, in its own words: a wrong key, another contract, a prompt too long. */
class CloudRefusedException(message: String) : EdgeException(message)

/** A model bundle cannot be used. */
sealed class BundleException(message: String, cause: Throwable? = null) : EdgeException(message, cause)

/** There is no bundle at the given path. */
class BundleMissingException(message: String) : BundleException(message)

/** A file that the bundle lists is missing, unreadable or of the wrong size; or an archive is invalid. */
class BundleFileException(message: String, cause: Throwable? = null) : BundleException(message, cause)

/**
 * Another bundle is installed under the same name: it is replaced only where the call says `replace = true`.
 *
 * @property folder where it is installed. [installed] and [offered] are the SHA-256 of both `bundle.json`, which list the
 *   SHA-256 of every other file.
 */
class BundleExistsException(val folder: File, val installed: String, val offered: String) : BundleException(
    "${folder.name}: expected no other bundle of this name, found one installed with SHA-256 $installed of its " +
        "bundle.json; the one offered has $offered. Ask for it to be replaced.",
)

/** A file does not match its stated SHA-256. */
class BundleHashException(message: String) : BundleException(message)

/** `bundle.json`, the tokenizer or the chat template is invalid or of an unsupported form. */
class BundleSchemaException(message: String, cause: Throwable? = null) : BundleException(message, cause)

/** The bundle has no such variant. */
class BundleVariantException(message: String) : BundleException(message)

/** A payload, or the anchors in it, cannot be used. */
sealed class PayloadException(message: String) : EdgeException(message)

/** The bytes end before the end of the payload. */
class TruncatedPayloadException(message: String) : PayloadException(message)

/** The payload, or its stated decompressed size, exceeds the limit. */
class OversizedPayloadException(message: String) : PayloadException(message)

/** The bytes were changed in transit. */
class ChecksumException(message: String) : PayloadException(message)

/** The payload has a version of the format that this library does not support. */
class VersionException(message: String) : PayloadException(message)

/** The payload has a codec that this library does not support: request codec compact. */
class CodecException(message: String) : PayloadException(message)

/** The content violates the format. */
class MalformedPayloadException(message: String) : PayloadException(message)

/** The payload was made for another vocabulary, special ids or chat template. */
class ContractMismatchException(message: String) : PayloadException(message)

/** A position is outside the canvas, a token id outside the vocabulary, or confidences do not match the anchors. */
class AnchorRangeException(message: String) : PayloadException(message)

/** The payload needs its prompt, which it does not carry and which was not passed. */
class PromptRequiredException(message: String) : PayloadException(message)

/** The payload is a delta, and its base was not passed or does not match. */
class BasePayloadException(message: String) : PayloadException(message)

/**
 * The payload was coded against a model's predictions, and this device has no model, another one, or decoded another
 * text with it. A payload of codec compact for the same anchors can be decoded instead.
 */
class FingerprintException(message: String) : PayloadException(message)

/** The codec needs the tokenizer, and none was passed. */
class TokenizerRequiredException(message: String) : PayloadException(message)
