/** Of this front end; a test compares it with package.json and with the server's. */
export const VERSION = '0.1.0';
