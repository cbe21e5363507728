// By default modules are numbered by their whole paths, and the bundle would differ from folder to folder.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
